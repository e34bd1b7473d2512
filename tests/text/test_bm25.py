import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.text.bm25 import Fits, index, joined, query_terms, scores_of, terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("Málaga NIÑO ﬁn", ["malaga", "nino", "fin"], id="accents and ligatures"),
        pytest.param("the cause of it", ["caus"], id="English stop words"),
        pytest.param("la reserva de los vuelos está aquí", ["reserva", "vuelo"], id="Spanish stop words"),
        pytest.param("getUserName", ["get", "user", "nam"], id="camelCase"),
        pytest.param("HTTPServer parseURL", ["http", "server", "pars", "url"], id="acronyms"),
        pytest.param("max_retry_count", ["max", "retri", "count"], id="snake_case"),
        pytest.param("sha256 utf8Decode v2", ["sha256", "utf8", "decod", "v2"], id="digits stay with their letters"),
        pytest.param("東京都 ok", ["東京", "京都", "ok"], id="a script without spaces"),
        pytest.param("都", ["都"], id="a single character of one"),
        pytest.param("заказы", ["заказы"], id="another script"),
        pytest.param("أول سؤال", ["اول", "سوال"], id="Arabic with marks"),
        pytest.param("फ़ोन नहीं", ["फ़ोन", "नहीं"], id="vowel signs"),
        pytest.param("ฉันไม่", ["ฉั", "ัน", "นไ", "ไม", "ม่"], id="Thai, without spaces"),
        pytest.param("a_I__", [], id="nothing but stop words"),
    ],
)
def test_terms(text: str, found: list[str]) -> None:
    assert terms(text) == found


FORMS = (
    "query queries|file files filing|make makes making|run running|call calls calling|class classes|error errores|"
    "canción canciones"
)


@pytest.mark.parametrize("words", FORMS.split("|"))
def test_forms_of_a_word_are_one_term(words: str) -> None:
    assert len(set(terms(words))) == 1


@pytest.mark.parametrize("words", ["string str", "status statu", "analysis analysi", "thing th", "news new", "gas ga"])
def test_different_words_are_different_terms(words: str) -> None:
    first, *_ = terms(words)
    assert words.startswith(first) or first == "new"
    assert len(terms(words)) == 2


@pytest.mark.parametrize(
    ("texts", "query", "better"),
    [
        pytest.param(["common rare", "common common", "common"], "rare common", (0, 1), id="rare terms count more"),
        pytest.param(["word", "word " + "filler " * 50], "word", (0, 1), id="a short text fits better"),
        pytest.param(["word word other", "word other other"], "word", (0, 1), id="twice is better than once"),
        pytest.param(["max_retries = 5", "maximum"], "maxRetries", (0, 1), id="spellings of an identifier"),
    ],
)
def test_a_better_text_ranks_higher(texts: list[str], query: str, better: tuple[int, int]) -> None:
    scores = scores_of(query, index(texts))
    assert scores[better[0]] > scores[better[1]]


def test_scores_follow_the_formula_of_bm25_and_a_very_long_query_has_its_longest_terms() -> None:
    assert scores_of("apple apple", index(["apple", "pear"])) == [pytest.approx(0.6931471805599453), 0.0]
    query = " ".join([f"w{number}" for number in range(200)] + ["extraordinary"])
    scores = scores_of(query, index(["w0 w1 w2", "extraordinary", "w150"]))
    assert max(scores) == scores[1] > 0
    assert sum(score > 0 for score in scores) < 3
    texts = index([*(f"the last bus goes at night, stop {n}" for n in range(19)), "Platform nine, at night"])
    assert not Fits("Say good night in Japanese", [texts]).telling.any()
    assert Fits("Which platform at night?", [texts]).telling.tolist() == [0] * 19 + [1]


@given(st.lists(st.text(max_size=80), max_size=8), st.text(max_size=40))
def test_any_text_has_a_score_and_only_shared_terms_give_one(texts: list[str], query: str) -> None:
    wanted = set(terms(query))
    scores = scores_of(query, index(texts))
    assert [score > 0 for score in scores] == [bool(wanted & set(terms(text))) for text in texts]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        pytest.param("Wie lange gilt das Ticket?", ["lang", "gilt", "ticket"], id="German"),
        pytest.param("Qual é o meu orçamento?", ["orcamento"], id="Portuguese"),
        pytest.param("When did the war begin?", ["war", "begin"], id="a word of German in English"),
        pytest.param("war crimes", ["war", "crim"], id="one word tells no language"),
        pytest.param("Und was ist das?", [], id="nothing is named"),
    ],
)
def test_query_terms_have_no_stop_words_of_the_language(query: str, found: list[str]) -> None:
    assert query_terms(query) == found


@given(st.lists(st.lists(st.text(max_size=40), max_size=4), max_size=4), st.text(max_size=40))
def test_fits_do_not_depend_on_the_partition_into_indexes(groups: list[list[str]], query: str) -> None:
    whole = Fits(query, [index(text for each in groups for text in each)])
    parted = Fits(query, [index(each) for each in groups])
    assert parted.scores == pytest.approx(whole.scores)
    assert parted.shares == pytest.approx(whole.shares)
    assert (parted.terms.tolist(), parted.telling.tolist()) == (whole.terms.tolist(), whole.telling.tolist())


@given(st.lists(st.lists(st.text("ab c"), max_size=4), max_size=6), st.integers(0, 6))
def test_joined_indexes_equal_the_index_of_all_texts(groups: list[list[str]], first: int) -> None:
    each = [index(texts) for texts in groups]
    whole = joined([joined(each[:first]), *each[first:]])
    assert whole == index([text for texts in groups for text in texts])
