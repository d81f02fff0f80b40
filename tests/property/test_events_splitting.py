"""Texts of many events, whole and mangled, against Python's own json."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.stream.events.splitting import NotEventsError, split

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab"\\{}[],\n'), inner),
    max_leaves=8,
)  # fmt: skip
OBJECTS = st.dictionaries(st.text('ab"\\{}[],\n:'), VALUES, max_size=4)
SPACE = st.sampled_from([b"", b" ", b"\t", b"\r"])
GAPS = st.sampled_from([b"", b" ", b"\n", b"\r\n\t"])


def written(draw):
    value = draw(OBJECTS)
    return json.dumps(value, ensure_ascii=draw(st.booleans())).encode()


@st.composite
def arrays(draw):
    objects = [written(draw) for _ in range(draw(st.integers(1, 6)))]
    inner = b",".join(draw(GAPS) + text + draw(GAPS) for text in objects)
    return draw(GAPS) + b"[" + inner + b"]" + draw(GAPS), objects


@st.composite
def lines(draw):
    objects = [written(draw) for _ in range(draw(st.integers(1, 6)))]
    parts = [draw(SPACE) + text + draw(SPACE) for text in objects]
    blanks = [draw(SPACE) for _ in range(draw(st.integers(0, 3)))]
    for blank in blanks:
        parts.insert(draw(st.integers(0, len(parts))), blank)
    return b"\n".join(parts) + draw(st.sampled_from([b"", b"\n"])), objects


def strict(text):
    """Python's parser, without the constants and lone surrogates that JSON does not have."""

    def refuse(_):
        raise ValueError

    value = json.loads(text.decode(), parse_constant=refuse, parse_int=str, parse_float=str)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def expected(text, by_line):
    """What Python makes of it: the objects, or None where it is to be refused."""
    try:
        if by_line:
            found = [strict(line) for line in text.split(b"\n") if line.strip(b" \t\r")]
        else:
            whole = strict(text)
            found = whole if isinstance(whole, list) else [whole]
    except ValueError:
        return None
    return found if found and all(isinstance(one, dict) for one in found) else None


@settings(max_examples=80, deadline=None)
@given(arrays())
def test_an_array_s_events_come_out_as_they_went_in(case):
    text, objects = case
    assert list(split(bytearray(text), lines=False, most=10)) == objects


@settings(max_examples=80, deadline=None)
@given(lines())
def test_the_events_of_lines_come_out_as_they_went_in(case):
    text, objects = case
    assert list(split(bytearray(text), lines=True, most=10)) == objects


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans())
def test_a_mangled_text_is_split_if_python_reads_it_and_refused_if_not(data, by_line):
    text, _ = data.draw(lines() if by_line else arrays())
    at = data.draw(st.integers(0, len(text)))
    size = data.draw(st.integers(0, 3))
    instead = data.draw(st.sampled_from([b"", b",", b"{", b"}", b"]", b'"', b"\\", b"\n", b"\xff"]))
    text = text[:at] + instead + text[at + size :]
    try:
        found = [strict(one) for one in split(bytearray(text), lines=by_line, most=100)]
    except NotEventsError:
        found = None
    assert found == expected(text, by_line)
