#include "driver/report/html/html.h"

#include <fmt/format.h>

#include <algorithm>

namespace graphpipe::driver {
namespace {

// Black on white, so that it prints; one column, so that it fits a phone.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light; }
body { font: 16px/1.45 system-ui, sans-serif; color: #111; background: #fff; margin: 0 auto; padding: 1rem; max-width: 76rem; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #999; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; } h1, h2, h3, summary { overflow-wrap: anywhere; } svg { max-width: 100%; height: auto; }
p { margin: .5rem 0; max-width: 60rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: .875rem; } caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { border: 1px solid #bbb; padding: .2rem .5rem; text-align: left; vertical-align: top; }
td { max-width: 24rem; overflow-wrap: break-word; }
th { background: #f2f2f2; } th[scope=row] { background: none; font-weight: inherit; max-width: 24rem; overflow-wrap: break-word; }
.wide { overflow-x: auto; } .timeline svg { min-width: 48rem; }
.memory { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .5rem 1rem; } .memory svg { width: 100%; }
.operators { font-size: .875rem; }
.mark { font-size: .75rem; border: 1px solid #777; border-radius: .3rem; padding: 0 .3rem; white-space: nowrap; }
.bars { list-style: none; padding: 0; margin: .5rem 0; font-size: .8125rem; }
.bars li { display: grid; grid-template-columns: 16rem 1fr; column-gap: .75rem; align-items: center; margin: .25rem 0; }
.bars .name { text-align: right; overflow-wrap: anywhere; } .idle .bars li { grid-template-columns: 10rem 1fr; } .idle .bars .name { text-align: left; }
.bars .value { display: flex; align-items: center; gap: .4rem; white-space: nowrap; } .bars svg { display: block; width: 100%; height: 1rem; }
.bars .length { height: 1rem; border: 1px solid #111; box-sizing: border-box; background: #c6dbef; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.bars .this-plan { font-weight: 600; } .this-plan .length { background: #2171b5; } .measured .length { background: #fdae6b; }
.bound .length { background: none; border-style: dashed; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; margin: .5rem 0; list-style: none; font-size: .8125rem; }
.legend svg { vertical-align: -1px; }
.figures { display: flex; flex-wrap: wrap; gap: .5rem 2rem; padding: 0; list-style: none; }
.figures b { display: block; font-size: 1.25rem; }
details { margin: .3rem 0; } summary { cursor: pointer; } a { color: #0b3d91; }
a:focus, summary:focus, .wide:focus { outline: 2px solid #0b3d91; }
@media screen and (max-width: 48rem) { .wide svg { max-width: none; }
  .bars li, .idle .bars li { grid-template-columns: 1fr; } .bars .name { text-align: left; } }
@media print { body { font-size: 10pt; max-width: none; padding: 0; } .wide { overflow: visible; } .timeline svg { min-width: 0; }
  .memory { grid-template-columns: repeat(3, 1fr); }
  table { font-size: 7.5pt; } th, td { padding: .1rem .25rem; } td, th[scope=row] { overflow-wrap: anywhere; }
  h2, h3 { break-after: avoid; } tr, svg { break-inside: avoid; } @page { size: A4; margin: 14mm; } }
)";

}  // namespace

std::string shortened(std::string_view raw, size_t max_bytes) {
  if (raw.size() <= max_bytes) return std::string(raw);
  size_t end = 0;
  while (end < raw.size()) {
    const size_t next = end + std::max<size_t>(1, utf8_length(raw.substr(end)));
    if (next + 3 > max_bytes) break;
    end = next;
  }
  return std::string(raw.substr(0, end)) + "...";
}

namespace {

double letter_width(char c, double size) {
  constexpr std::string_view kNarrow = "iljtfrI.,:;'|!()[] ", kWide = "mwMW@%";
  const double share = kNarrow.find(c) != std::string_view::npos ? 0.42
                       : kWide.find(c) != std::string_view::npos ? 1.05
                       : c >= 'A' && c <= 'Z'                    ? 0.8
                                                                 : 0.7;
  return share * size;
}

}  // namespace

double text_width(std::string_view ascii, double size) {
  double width = 0;
  for (const char c : ascii) width += letter_width(c, size);
  return width;
}

std::string fitted(std::string_view ascii, double width, double size) {
  const double dots = text_width("...", size);
  double used = 0;
  size_t kept = 0;
  for (size_t i = 0; i < ascii.size(); ++i) {
    used += letter_width(ascii[i], size);
    if (used + dots <= width) kept = i + 1;
    if (used > width) return std::string(ascii.substr(0, kept)) + "...";
  }
  return std::string(ascii);
}

std::string counted(size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string origin_mark(Origin origin) {
  constexpr std::string_view kNames[] = {"measured", "simulated", "assumed"};
  return fmt::format("<span class=\"mark\">{}</span>", kNames[static_cast<size_t>(origin)]);
}

std::string wide_part(const std::string& name, const std::string& content, const std::string& also_class) {
  return fmt::format("<div class=\"wide{}\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{}</div>\n",
                     also_class.empty() ? "" : " " + also_class, html_text(name), content);
}

std::string html_table(const std::string& name, const std::vector<std::vector<std::string>>& rows,
                       const std::string& mark) {
  std::string out = "<table><caption>" + html_text(name) + (mark.empty() ? "" : " " + mark) + "</caption>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    out += "<tr>";
    for (size_t j = 0; j < rows[i].size(); ++j) {
      const std::string& cell = rows[i][j];
      if (i == 0 && cell.empty()) out += "<td></td>";
      else if (i == 0) out += "<th scope=\"col\">" + cell + "</th>";
      else out += j == 0 ? "<th scope=\"row\">" + cell + "</th>" : "<td>" + cell + "</td>";
    }
    out += "</tr>\n";
  }
  return wide_part(name, out + "</table>");
}

std::string html_page(std::string_view title, const std::string& body) {
  // The policy allows only the page's own styles: nothing runs, and nothing is loaded.
  return fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{0}</title>
<style>{1}</style>
</head>
<body>
<main>
<h1>{0}</h1>
{2}</main>
</body>
</html>
)",
                     html_text(title), kStyle, body);
}

}  // namespace graphpipe::driver
