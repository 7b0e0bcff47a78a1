#pragma once
// Steps beside each other as bars: of plans, of the same plan with a decision taken back, and their bounds.

#include <string>
#include <vector>

namespace graphpipe::driver {

/// How a bar looks: also told apart in black on white.
enum class BarLook : uint8_t { kThisPlan, kOther, kBound, kMeasured };

struct StepBar {
  /// HTML.
  std::string name;
  double seconds = 0;
  BarLook look = BarLook::kOther;
};

/// An SVG with a row for each bar, as long as its step, called `title` (HTML). Needs: a bar that is longer than zero.
std::string step_bars(const std::string& title, const std::vector<StepBar>& bars);

}  // namespace graphpipe::driver
