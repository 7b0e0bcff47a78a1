// Programs of the installed runtime: what is said where they are missing.

#include <doctest/doctest.h>

#include "driver/launch/check_program.h"
#include "tests/driver/ask.h"
#include "tests/driver/variable.h"
#include "tests/support/onnx_text.h"
#include "tests/support/test_data.h"

namespace graphpipe::tests {
namespace {

using graphpipe::testing::TemporaryFolder;

std::string make_plan(const TemporaryFolder& folder) {
  const Answer answer = ask({"plan", data_path("models/dlrm/model.onnx"), "--loss", "bce:logit,click", "--cluster",
                             "default", "--devices", "1", "--batch", "8", "-o", folder / "plan.json", "-q"});
  CAPTURE(answer.err);
  REQUIRE(answer.code == 0);
  return folder / "plan.json";
}

TEST_CASE("without a runtime, no program of the system's folder is taken for one of its programs") {
  const Result<std::string> program = driver::runtime_program("", "sh");
  REQUIRE_FALSE(program.ok());
  const Diagnostic& problem = program.problems().front();
  CHECK(problem.code == Code::kEnvironment);
  CHECK(problem.origin == ModelText("sh"));
  CHECK(holds(problem.message, "no installed runtime was found"));
  CHECK(holds(problem.hint, "graphpipe-runtime"));
}

TEST_CASE("a program that the runtime lacks is installed with it, not built with a folder") {
  const TemporaryFolder folder;
  const std::string plan = make_plan(folder);
  const Variable runtime("GRAPHPIPE_RUNTIME_DIR", folder / "runtime");
  const Answer answer = ask({"run", plan, "--pace"});
  CAPTURE(answer.err);
  CHECK(answer.code == 5);
  CHECK(holds(answer.err, folder / "runtime/bin/graphpipe-pace"));
  CHECK(holds(answer.err, "part of the runtime"));
  CHECK(holds(answer.err, "scripts/build"));
  CHECK_FALSE(holds(answer.err, "graphpipe build"));
}

}  // namespace
}  // namespace graphpipe::tests
