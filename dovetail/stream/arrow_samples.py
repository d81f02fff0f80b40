"""How Arrow begins a stream of each set of columns that a batch may have.

Arrow has written them beforehand, so that a process which writes and reads nothing else need not
load it. The unit test of templates compares them with what the installed Arrow writes;
`python -m dovetail.testing.arrow_samples` prints them anew.
"""

from __future__ import annotations

import zlib
from base64 import b85decode
from itertools import product
from typing import TYPE_CHECKING

from dovetail.stream.arrow_stream import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WRITTEN = (
    "c-rk+uXEcl6n<{qB;CBtyXJNQ0R{yD1pxyA1%?3wh5@@<dbjkF+qKQLzFo=&`v(*h6bu#=3=R$q6a*F&6a)+m1P%=B"
    "<~_Ocs=UgH;xxadJ6V?X^rTqdr}v(fAP9nv0bm15Pr!l{tU(6vFc~J+0c#n&n*0i3*}^_0gUJB2u{gzC$6VwxU;hRH"
    "Hf}JzIsS~LHO#er|L_>gA1KqglUreOc|neiU;BuX@BGGI4d5n}1H;8jHjwLPrC)3L?A}G0?Le-3oynorBY$VFiTAIA"
    "d)-Z;kElC^`CxbVsD|3#3-X`)jM3aV^c#NTU?1<#cpnEZ*TVes^xd%E96mF{=Qd>VeWxHDu7u6k>EU>*m_O8xQP#qo"
    "4%aA}BTG1BkXgZZ$Lkin;wx>1nqk!pe{U1u{|e-=#pGCc!!csOecFKdlp!U3Zu2t7%Sf+7<Q-vcSt^kB0?}I}?M2dF"
    "BJCwIpE8+`N8~-CuR_`@L|>igi~1U*-=ymd4_}7leVXII!hFrJ&wt-GZ`WKNKbP6MT^WOUT#4avUczHr^EgcDDe>?k"
    "0S{end#||deJj}Bu7d5&;kcT6$?WKj0{`kU{M(Z7@8uHnFOsiH_%SU$wua;*!*rJ0#B<^YYmN<X-_8{H<;C#p4?N`8"
    "^CjR{wC?ldHx_&S#=iE-V)09$=3jz<dCe>BH>&U|YIjMyOXlm%kexb7V5c1H)4}qB;a`Z|G`B|g3r`gI<;L)<E3sS8"
    "7LZ?)v{RGt<3t;!{W$H%&66MJ4apCNm7m;pGzHtCG2d$kDhjwS#o)dz!Tr-Y#C`OhXC?md`kYnWD#Raclra^3Bv-&~"
    "Ng@6(piEVfL+66-Qw0vS1^MrS{AM2xQEWT${7~Z7G`^eJq%;T*fYi+ayvU5m3!B6f2HF3C)H8GV-Rx5We`_=5EJ<@M"
    "8P_K5cP$FfW<4&+#hmrn3ULV=RCA;EyloIasxkbqBzEY<0`tQr|7(~=oKj8@r*tJTyyn2&`>ZSAzZ`@ATZw(J76AX_"
    "j8`7RFDmx>MSb`CUl^-wDf&-!0h8J<T3o+q9==Ca672K8C1)8L`*Oc$lHa9f760Sh=f~}*h<m*DQ?#G**!XpZ#4pR="
    "$XUQL?4tz*Toz++c`3o=`V8VS(lsis{sFR3Es6"
)


def sets_of(names: Sequence[str], optional: Sequence[str]) -> list[tuple[str, ...]]:
    """All sets of columns, in the order of what is written of them."""
    found = []
    for flags in product((False, True), repeat=len(optional)):
        left_out = {name for name, flag in zip(optional, flags, strict=True) if flag}
        found.append(tuple(name for name in names if name not in left_out))
    return found


def samples_of(
    names: Sequence[str], optional: Sequence[str]
) -> dict[tuple[str, ...], tuple[bytes, bytes]]:
    """By the names of its columns a stream's schema, and the metadata of a batch."""
    written = _messages(zlib.decompress(b85decode(_WRITTEN)))
    pairs = zip(written, written, strict=True)
    return dict(zip(sets_of(names, optional), pairs, strict=True))


def _messages(text: bytes) -> Iterator[bytes]:
    """One after the other: each says how long it is."""
    at = 0
    while at < len(text):
        end = at + PREFIX + int.from_bytes(text[at + 4 : at + PREFIX], "little")
        yield text[at:end]
        at = end
