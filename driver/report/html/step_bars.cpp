#include "driver/report/html/step_bars.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/report/html/html.h"
#include "driver/report/report.h"

namespace graphpipe::driver {
namespace {

/// The longest bar, as part of the line's width; the rest is for the number after it.
constexpr double kLongestPercent = 85;

std::string_view class_of(BarLook look) {
  switch (look) {
    case BarLook::kThisPlan:
      return "this-plan";
    case BarLook::kBound:
      return "bound";
    case BarLook::kMeasured:
      return "measured";
    case BarLook::kOther:
      break;
  }
  return "other";
}

}  // namespace

std::string step_bars(const std::string& name, const std::vector<StepBar>& bars) {
  double longest = 0;
  for (const StepBar& bar : bars) longest = std::max(longest, bar.seconds);
  std::string out = "<ul class=\"bars\" role=\"list\" aria-label=\"" + html_text(name) + "\">\n";
  for (const StepBar& bar : bars)
    out += fmt::format(
        "<li class=\"{}\"><span class=\"name\">{}</span> <span class=\"value\"><span class=\"length\" "
        "style=\"width: {:.2f}%\"></span> {}</span></li>\n",
        class_of(bar.look), bar.name, kLongestPercent * bar.seconds / longest, html_text(human_seconds(bar.seconds)));
  return out + "</ul>\n";
}

}  // namespace graphpipe::driver
