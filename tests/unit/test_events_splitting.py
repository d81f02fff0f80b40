import pytest

from dovetail.stream.events.splitting import NotEventsError, TooManyError, split


def events(text, *, lines=False, most=10):
    return list(split(bytearray(text), lines=lines, most=most))


def why(text, *, lines=False):
    with pytest.raises(NotEventsError) as caught:
        events(text, lines=lines)
    return str(caught.value), caught.value.place


def test_one_object_is_one_event_and_loses_the_space_around_it():
    assert events(b' \n{"a": {"b": [1, "]"]}}\r\n') == [b'{"a": {"b": [1, "]"]}}']


def test_an_array_s_objects_are_events_byte_for_byte():
    assert events(b'[ {"a":1} ,{ },\n{"b":"},{"}]') == [b'{"a":1}', b"{ }", b'{"b":"},{"}']


def test_a_line_is_an_event_and_a_blank_one_is_none():
    text = b'{"a":1}\n\n  {"b":"\\n"} \r\n \t\n{}'
    assert events(text, lines=True) == [b'{"a":1}', b'{"b":"\\n"}', b"{}"]


@pytest.mark.parametrize("text", [b"", b" \n", b"[]", b" [ ] "])
def test_a_text_without_events_is_refused(text):
    assert why(text) == ("there is no event in it", {})


@pytest.mark.parametrize("text", [b"", b"\n \n"])
def test_lines_without_events_are_refused(text):
    assert why(text, lines=True) == ("there is no event in it", {})


@pytest.mark.parametrize(
    ("text", "detail", "event"),
    [
        (b"[{},]", "event 2 is not a JSON object: ']' is wrong at byte 4", 2),
        (b"[{},1]", "event 2 is not a JSON object: '1' is wrong at byte 4", 2),
        (b"[{}", "event 1 is not a JSON object: it breaks off after 3 bytes", 1),
        (b"[{} {}]", "event 1 is not a JSON object: '{' is wrong at byte 4", 1),
        (b"[{}]]", "event 1 is not a JSON object: ']' is wrong at byte 4", 1),
        (b'{"a":01}', "event 1 is not a JSON object: '1' is wrong at byte 6", 1),
        (b"{}{}", "event 1 is not a JSON object: '{' is wrong at byte 2", 1),
        (b"null", "event 1 is not a JSON object: 'n' is wrong at byte 0", 1),
        (b"[[{}]]", "event 1 is not a JSON object: '[' is wrong at byte 1", 1),
        (b'{"a":"\xff"}', "event 1 is not a JSON object: byte 0xff is wrong at byte 6", 1),
    ],
)
def test_what_is_no_json_is_told_with_its_event(text, detail, event):
    assert why(text) == (detail, {"event": event})


@pytest.mark.parametrize(
    ("text", "detail", "line"),
    [
        (b'{}\n\n{"a":}\n{}', "line 3 is not a JSON object: '}' is wrong at byte 5", 3),
        (b'{}\n{"a"', "line 2 is not a JSON object: it breaks off after 4 bytes", 2),
        (b'{"a":\n1}', "line 1 is not a JSON object: it breaks off after 5 bytes", 1),
        (b"{} {}", "line 1 is not a JSON object: '{' is wrong at byte 3", 1),
        (b"[{}]", "line 1 is not a JSON object: '[' is wrong at byte 0", 1),
        (b"{},\n{}", "line 1 is not a JSON object: ',' is wrong at byte 2", 1),
    ],
)
def test_what_is_no_json_is_told_with_its_line(text, detail, line):
    assert why(text, lines=True) == (detail, {"line": line})


def test_an_object_is_nested_at_most_so_deep():
    deepest = b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"
    assert events(deepest) == [deepest]
    deeper = b'{"a":' + b"[" * 64 + b"]" * 64 + b"}"
    assert why(b"[{}," + deeper + b"]") == ("event 2 nests deeper than 64 levels", {"event": 2})
    assert why(b"{}\n" + deeper, lines=True) == ("line 2 nests deeper than 64 levels", {"line": 2})


def test_no_more_events_are_taken_than_allowed():
    assert len(events(b"{}\n" * 10, lines=True)) == 10
    assert len(events(b"[" + b"{}," * 9 + b"{}]")) == 10
    with pytest.raises(TooManyError):
        events(b"{}\n" * 11, lines=True)
    with pytest.raises(TooManyError):
        events(b"[" + b"{}," * 10 + b"{}]")
