"""What asks nothing, by its words alone."""

from time import process_time

import pytest

from proxy.text.small_talk import asks_nothing, is_small_talk, phrases


def listed(texts: str) -> list[str]:
    return [text.strip() for line in texts.strip().splitlines() for text in line.split("|")]


SMALL_TALK = """
    👍 | 🎉🎉 | ?!
    Hello! | Good morning, how are you? | heyyy | Thanks a lot :) | LOL | looool | hahahaha | Ok, thanks!
    hola, ¿qué tal? | ¡Muchas gracias! | jajajajaja | Vale, perfecto | Buenísimo 😂 | Adiós, ¡hasta mañana!
    Merci beaucoup ! | Vielen Dank! | Obrigado! | Grazie mille | Спасибо большое! | Ευχαριστώ πολύ | شكرا جزيلا
    谢谢！ | 好的谢谢 | ありがとうございます | 감사합니다 | धन्यवाद | ขอบคุณครับ | Teşekkürler | Cảm ơn
"""


@pytest.mark.parametrize("text", ["", *listed(SMALL_TALK)])
def test_small_talk(text: str) -> None:
    assert is_small_talk(text)
    assert asks_nothing(text)


ASSENT = """
    yes | Yes, please. | go on | great, keep going | sí | Sigue, por favor | continue | weiter | 继续 | 続けて | дальше
"""


@pytest.mark.parametrize("text", listed(ASSENT))
def test_assent_asks_nothing_but_may_want_a_tool(text: str) -> None:
    assert not is_small_talk(text)
    assert asks_nothing(text)


QUESTIONS = """
    hello, turn off the light | thanks, and the weather? | what can you do? | my dog's name? | and the budget?
    hola, apaga la luz | ¿y el presupuesto? | Wie heißt mein Hund? | 我的狗叫什么名字？ | 犬の名前は？
"""


@pytest.mark.parametrize("text", [*listed(QUESTIONS), "hola " * 30])
def test_a_question_is_neither(text: str) -> None:
    assert not is_small_talk(text)
    assert not asks_nothing(text)


def test_phrases_of_many_languages_are_each_there_once_and_matched_in_linear_time() -> None:
    assert {"thanks", "gracias", "merci", "谢谢", "ありがとう", "спасибо"} <= set(phrases())
    assert len(phrases()) == len(set(phrases()))
    started = process_time()
    for unit in ("no ", "嗯嗯好", "bye bye ", "k o ", "ha "):
        asks_nothing((unit * 40)[:79] + "x")
    assert process_time() - started < 5
