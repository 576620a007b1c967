"""Style of the report: one column, system fonts, colours by variable for a light and a dark theme, fit for print."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1a2230; --muted: #5d6878; --line: #e1e5eb; --grid: #d9dee6;
  --accent: #1660b8; --band: #bcd7f5; --prior: #9aa5b4; --truth: #c2410c; --warn: #b45309; --bad: #b91c1c;
  --good: #15803d; --good-soft: #e7f5ec; --warn-soft: #fdf3e1; --bad-soft: #fdeaea;
  --s0: #1660b8; --s1: #e07b39; --s2: #2a9d74; --s3: #b1458f; --s4: #8a7a1f;
  --s5: #5c9fd6; --s6: #7d5fc4; --s7: #8b95a3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11151c; --card: #19202a; --ink: #e8ecf2; --muted: #9ba7b7; --line: #2b3441; --grid: #333e4d;
    --accent: #6db1ff; --band: #25496f; --prior: #76839a; --truth: #ff9d66; --warn: #f0b35a; --bad: #ff8a8a;
    --good: #6fd398; --good-soft: #173226; --warn-soft: #392b12; --bad-soft: #421d1d;
    --s0: #6db1ff; --s1: #f2a065; --s2: #5fcfa5; --s3: #e08cc4; --s4: #cdbb52;
    --s5: #9ccdf2; --s6: #b29df0; --s7: #8b95a3;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 36px 20px 60px; }
header .kicker { color: var(--muted); font-size: 14px; margin: 0 0 4px; }
h1 { font-size: 34px; line-height: 1.2; margin: 0 0 6px; font-weight: 650; letter-spacing: -0.01em; }
header .lead { font-size: 18px; margin: 0 0 18px; color: var(--muted); }
header .lead b { color: var(--ink); font-weight: 600; }
h2 { font-size: 20px; margin: 0 0 2px; font-weight: 620; }
h2 + p { margin-top: 0; color: var(--muted); max-width: 82ch; }
h3 { font-size: 15px; margin: 18px 0 6px; font-weight: 620; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 22px 26px 20px; margin: 18px 0;
}
p { margin: 8px 0; max-width: 95ch; }
.state { border-radius: 10px; padding: 12px 18px; margin: 16px 0; border: 1px solid; }
.state p { margin: 2px 0; }
.state.good { background: var(--good-soft); border-color: var(--good); }
.state.warn { background: var(--warn-soft); border-color: var(--warn); }
.state.bad { background: var(--bad-soft); border-color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 14px; margin: 18px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 13px 15px; }
.tile .name { color: var(--muted); font-size: 13.5px; }
.tile .value { font-size: 21px; font-weight: 620; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile .note { color: var(--muted); font-size: 13.5px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14.5px; }
th { text-align: right; font-weight: 500; color: var(--muted); font-size: 13px; padding: 4px 10px; }
td { text-align: right; padding: 5px 10px; border-top: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.text, th.text { text-align: left; }
td.wide { white-space: normal; }
td.strong { font-weight: 600; }
table.small { font-size: 13px; }
table.small td { vertical-align: top; min-width: 96px; } table.small td:first-child { min-width: 0; }
td.bar { width: 230px; padding: 0 0 0 16px; }
td .unit, .unit { color: var(--muted); font-weight: 400; }
.yes { color: var(--good); } .no { color: var(--bad); font-weight: 700; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); gap: 6px 44px; }
.scroll { overflow-x: auto; }
svg.figure { width: 100%; height: auto; display: block; margin-top: 10px; font-family: inherit; }
svg.range { display: block; width: 100%; height: 22px; }
ul { margin: 8px 0; padding-left: 20px; } li { margin: 3px 0; max-width: 95ch; }
code { font: 13px ui-monospace, "SFMono-Regular", Menlo, "DejaVu Sans Mono", monospace; }
footer { color: var(--muted); font-size: 13.5px; margin-top: 20px; }
@media print { body { background: none; } section, .tile { break-inside: avoid; } }
"""
