// Policies of a cut model on example models other than dlrm, for which policies_test.cpp has all of them: the programs
// have the bits of the serial interpreter of the same plan. Of all cases, every policy on two of the models.

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "scheduler/policies/policies.h"
#include "support/text.h"
#include "tests/e2e/pipeline_run.h"
#include "tests/e2e/policy_cases.h"
#include "tests/support/case_count.h"

using namespace graphpipe;
using namespace graphpipe::tests;
using nlohmann::json;

namespace {

using Policies = std::set<std::string>;

/// Of each kind: gradients apart or together, one stage on a device or several, updates at the end of steps or
/// within.
const Policies kSeveral = {"zb-1p", "zb-v", "interleaved", "gpipe", "kfkb", "pipedream", "2bw"};

// One folder for all policies: code does not depend on the order. Policies of chains run a model of branches as
// a chain. Each kind is among the `few` of some model, but for what all examples are trained by (examples_test.cpp).
void check_model(const std::string& model, const std::string& micro_batch, const Policies& few,
                 const Policies& all = {}) {
  const Policies& policies = all_cases() ? all : few;
  const Reference reference = read_reference(model);
  std::set<std::string> done;
  for (const PolicyCase& c : cases_of_cut()) {
    const ir::StageShape shape = scheduler::find_policy(c.policy)->shape;
    if (!done.insert(c.policy).second || (!policies.empty() && !policies.contains(c.policy))) continue;
    CAPTURE(c.policy);
    std::vector<std::string> flags = {"--policy", c.policy, "--planner", "equal-split", "--micro-batch", micro_batch};
    flags.insert(flags.end(), c.flags.begin(), c.flags.end());
    if (shape != ir::StageShape::kAny) flags.insert(flags.end(), {"--execute", "chain"});
    const std::string folder = work_folder(text("policies_", model));
    compile(reference, folder, flags);
    const std::string report = graphpipe_output(
        {"verify", folder, "--data", reference.folder + "/data", "--steps", "2", "--lr", "0.05", "--json", "--quiet"});
    CHECK(json::parse(report)["bitwise"] == true);
  }
}

}  // namespace

TEST_CASE("policies train gpt2_like to the bits of the interpreter") {
  check_model("gpt2_like", "1", {"zb-v", "interleaved", "pipedream"});
}
// A loss that compares samples, and BatchNorm, are about what each micro-batch has: so none with replicas.
TEST_CASE("policies train resnet to the bits of the interpreter") {
  check_model("resnet", "2", {"zb-1p", "2bw"}, kSeveral);
}
// Branches, which policies_test.cpp has of dlrm, and examples_test.cpp of both under the policies that are used most.
TEST_CASE("policies train mmt and clip_like to the bits of the interpreter" * doctest::skip(!all_cases())) {
  check_model("mmt", "1", kSeveral);
  check_model("clip_like", "2", kSeveral, kSeveral);
}
