"""What a user lays down, told from chatter by form and words alone, in sentences that the classifier did not learn."""

import pytest

from proxy.history.statements import sentences


def kept(text: str) -> bool:
    (sentence,) = sentences(text)
    return sentence.likely >= 0.5


@pytest.mark.parametrize(
    "text",
    [
        "The train leaves on May 19 at 8:12.",
        "Nuestro presupuesto es de 1.400 euros en total.",
        "Und Lotte hat eine Erdnussallergie, das müssen wir beim Essen immer beachten.",
        "Rückkehr spätestens am 23. Mai",
        "Unser Budget liegt bei 1400 Euro insgesamt.",
        "Ne me donne jamais la solution tout de suite : pose-moi d'abord une question.",
        "Je suis dyslexique et je préfère des phrases courtes.",
        "Le contrôle est finalement avancé au 10 décembre.",
    ],
)
def test_what_a_user_lays_down_is_kept(text: str) -> None:
    assert kept(text)


@pytest.mark.parametrize(
    "text",
    [
        "That is good to hear.",
        "Me alegro mucho.",
        "Klingt super.",
        "Ok danke, das wusste ich nicht.",
        "Das Wetter ist heute furchtbar.",
        "Plus l'infini.",
        "Merci beaucoup, c'est clair !",
    ],
)
def test_chatter_is_not(text: str) -> None:
    assert not kept(text)
