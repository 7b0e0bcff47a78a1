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

/// A list with a bar in each line, as long as its step; `name` (text) is what a screen reader calls it. On a phone
/// names stand above their bars. Needs: a bar that is longer than zero.
std::string step_bars(const std::string& name, const std::vector<StepBar>& bars);

}  // namespace graphpipe::driver
