#include "support/diagnostic.h"

#include <doctest/doctest.h>

#include <set>

#include "support/result.h"
#include "wire/exit_codes.h"

namespace graphpipe {
namespace {

constexpr int kCodeCount = static_cast<int>(Code::kInternal) + 1;

TEST_CASE("every code has a name of its own and an exit code that wire/ knows") {
  const std::set<int> exit_codes = {wire::kExitCheckFailed, wire::kExitUsage,       wire::kExitInputRefused,
                                    wire::kExitNoPlan,      wire::kExitEnvironment, wire::kExitPeerFailed,
                                    wire::kExitPartial,     wire::kExitInternal};
  std::set<std::string_view> names;
  for (int i = 0; i < kCodeCount; ++i) {
    const auto code = static_cast<Code>(i);
    CAPTURE(i);
    CHECK(names.insert(code_name(code)).second);
    CHECK(exit_codes.contains(exit_code_of(code)));
  }
  CHECK(exit_code_of(Code::kUsage) == wire::kExitUsage);
  CHECK(exit_code_of(Code::kBadModel) == wire::kExitInputRefused);
  CHECK(exit_code_of(Code::kNoFeasiblePlan) == wire::kExitNoPlan);
  CHECK(exit_code_of(Code::kPeerFailed) == wire::kExitPeerFailed);
  CHECK(exit_code_of(Code::kInterrupted) == wire::kExitPartial);
  CHECK(exit_code_of(Code::kInternal) == wire::kExitInternal);
}

TEST_CASE("a diagnostic is one line that a terminal can show") {
  const Diagnostic problem{.code = Code::kUnsupportedOp,
                           .origin = ModelText("evil\n\x1b[2J"),
                           .message = "no row for this operator",
                           .hint = "export with another opset"};
  CHECK(to_line(problem) ==
        "error[unsupported-op] 'evil\\x0a\\x1b[2J': no row for this operator; export with another opset");
  CHECK(to_line({.code = Code::kUsage, .severity = Severity::kNote, .message = "m"}) == "note[usage] m");
  CHECK(has_error({problem}));
  CHECK_FALSE(has_error({{.code = Code::kUsage, .severity = Severity::kWarning}}));
}

Result<int> half(int number) {
  if (number % 2 != 0) return Diagnostic{.code = Code::kUsage, .message = text(number, " is odd")};
  return number / 2;
}

Result<int> quarter(int number) {
  GP_TRY(const int once, half(number));
  GP_TRY(const int twice, half(once));
  return twice;
}

Status check_even(int number) {
  GP_TRY_VOID(half(number));
  return Ok{};
}

TEST_CASE("a result holds a value or the reasons why there is none, and both travel up") {
  CHECK(quarter(12).value() == 3);
  CHECK(quarter(12).problems().empty());
  REQUIRE_FALSE(quarter(6).ok());
  CHECK(quarter(6).problems()[0].message == "3 is odd");
  CHECK(quarter(5).problems()[0].message == "5 is odd");
  CHECK(check_even(4).ok());
  CHECK_FALSE(check_even(5).ok());
}

}  // namespace
}  // namespace graphpipe
