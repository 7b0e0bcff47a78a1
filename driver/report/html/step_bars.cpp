#include "driver/report/html/step_bars.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/report/html/html.h"
#include "driver/report/report.h"

namespace graphpipe::driver {
namespace {

constexpr double kBarsWidth = 1000, kBarsLeft = 330, kLongestBar = 580, kStepPitch = 24, kStepHeight = 17;

std::string_view paint_of(BarLook look) {
  switch (look) {
    case BarLook::kThisPlan:
      return "fill=\"#2171b5\" stroke=\"#111\"";
    case BarLook::kBound:
      return "fill=\"#fff\" stroke=\"#111\" stroke-dasharray=\"4 3\"";
    case BarLook::kMeasured:
      return "fill=\"#fdae6b\" stroke=\"#111\"";
    case BarLook::kOther:
      break;
  }
  return "fill=\"#c6dbef\" stroke=\"#111\"";
}

}  // namespace

std::string step_bars(const std::string& title, const std::vector<StepBar>& bars) {
  double longest = 0;
  for (const StepBar& bar : bars) longest = std::max(longest, bar.seconds);
  const double height = kStepPitch * static_cast<double>(bars.size()) + 4;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "role=\"img\" font-family=\"sans-serif\" font-size=\"12\"><title>{2}</title>\n",
      kBarsWidth, height, title);
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = kStepPitch * static_cast<double>(i) + 3, width = kLongestBar * bars[i].seconds / longest;
    const std::string_view weight = bars[i].look == BarLook::kThisPlan ? " font-weight=\"bold\"" : "";
    out += fmt::format("<text x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\"{}>{}</text>", kBarsLeft - 8, y + 13, weight,
                       bars[i].name);
    out += fmt::format(
        "<rect x=\"{}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{}\" {} stroke-width=\"0.6\"/><text x=\"{:.1f}\" "
        "y=\"{:.0f}\"{}>{}</text>\n",
        kBarsLeft, y, width, kStepHeight, paint_of(bars[i].look), kBarsLeft + width + 6, y + 13, weight,
        html_text(human_seconds(bars[i].seconds)));
  }
  return out + "</svg>";
}

}  // namespace graphpipe::driver
