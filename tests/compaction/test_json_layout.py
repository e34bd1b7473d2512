import json

from proxy.compaction import compact

NOTE = "word " * 60


def form(value: object) -> str:
    found = compact(json.dumps(value))
    assert found is not None
    return found.text


def test_an_object_that_lacks_a_member_leaves_its_place_empty() -> None:
    people = [{"name": f"N-{n}", "age": n, "note": NOTE, "rank": "x"} for n in range(4)]
    del people[1]["age"]
    people[2] = dict(reversed(people[2].items()))

    lines = form(people).splitlines()

    assert lines[0].startswith('[("name","age"; all "note":"word word')
    assert [line.rstrip(",]") for line in lines[1:]] == ['["N-0",0', '["N-1"', '["N-2",2', '["N-3",3']
    assert lines[2] == '["N-1",],'


def test_a_member_that_some_lack_is_not_shared() -> None:
    rows = [{"id": f"A-{n}", "kind": "k", "note": NOTE, "unit": "m"} for n in range(5)]
    del rows[3]["unit"]

    lines = form(rows).splitlines()

    assert '"unit"' in lines[0].partition("; all ")[0]
    assert '"kind":"k"' in lines[0].partition("; all ")[2]
    assert lines[4].endswith(",],")
    assert lines[5].endswith(',"m"]]')


def test_objects_with_few_keys_in_common_show_their_keys() -> None:
    text = form([{"a": NOTE, "b": 1}, {"c": NOTE, "d": 2}, {"e": NOTE, "f": 3}])

    assert all(f'"{key}":{number}' in text for key, number in zip("bdf", "123", strict=True))


def test_of_a_long_series_of_points_the_ends_stay() -> None:
    text = form({"way": [[n + 0.5, n + 0.25] for n in range(400)], "id": "W-1"})

    assert text.startswith('{"way":[[0.5,0.25],[1.5,1.25]')
    assert text.endswith(',[399.5,399.25]],"id":"W-1"}')
    assert " more]" in text
    assert len(text) < 1000


def test_one_long_word_stays_whole() -> None:
    address = "https://example.com/" + "a1-" * 40

    assert f'"{address}"' in form([{"at": address, "note": NOTE * 3, "n": n} for n in range(3)])
