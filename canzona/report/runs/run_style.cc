#include "canzona/report/runs/run_sections.h"

namespace canzona {

// Added to the style of every page.
std::string_view run_style() {
  return R"css(
.curve.plain,.curve.faint,.curve.eval{stroke-dasharray:none}
.curve.plain{stroke-width:2}
.curve.faint{stroke-width:1;stroke-opacity:.28}
.curve.eval{stroke-width:1.2;stroke-dasharray:2 3}
.dot.curve{stroke:var(--card);stroke-width:1.2;stroke-dasharray:none}
.dot.s0{fill:var(--s0)}.dot.s1{fill:var(--s1)}.dot.s2{fill:var(--s2)}
.dot.s3{fill:var(--s3)}.dot.s4{fill:var(--s4)}.dot.s5{fill:var(--s5)}
.probe{fill:transparent}
.probe:hover{fill:var(--ink);fill-opacity:.07}
.choices{margin-top:.2rem}
.choices input{position:absolute;opacity:0;width:1px;height:1px;padding:0}
.choices label{display:inline-block;padding:3px 12px;border:1px solid var(--rule);
color:var(--dim);font-size:.86rem;cursor:pointer;margin-right:-1px}
.choices label:hover{color:var(--ink)}
.choices input:checked+label{background:var(--s0);border-color:var(--s0);
color:#10151b;font-weight:600}
.choices input:focus-visible+label{outline:2px solid var(--link);
outline-offset:1px}
.choices span{display:inline-block;width:18px}
.panel{display:none;margin-top:.5rem}
.x0:checked~.z0:checked~.p00,.x0:checked~.z1:checked~.p01,
.x1:checked~.z0:checked~.p10,.x1:checked~.z1:checked~.p11,
.x2:checked~.z0:checked~.p20,.x2:checked~.z1:checked~.p21{display:block}
.pairs{display:grid;
grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));
gap:14px 22px}
tbody th.who{white-space:normal;min-width:10rem}
.who small{display:block}
.swatch{display:inline-block;width:12px;height:12px;margin-right:7px;
border-radius:2px;vertical-align:-1px}
.differs th,.differs td{background:color-mix(in srgb,var(--s1) 16%,var(--card))}
td.name{min-width:0}
@media print{.choices label,.choices span{display:none}}
)css";
}

}  // namespace canzona
