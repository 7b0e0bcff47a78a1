// Every operator of ONNX's registry in models that nobody would export: the import, the passes and the prices end in a
// result or in problems. GRAPHPIPE_SWEEP_ROUNDS runs more of them, also of older versions of the operators. A failing
// model ends the process; GRAPHPIPE_SWEEP_KEEP names a file that holds the model in work.

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "tests/fuzz/exercise_model.h"
#include "tests/fuzz/one_operator_models.h"

namespace graphpipe::tests {
namespace {

namespace pb = graphpipe_onnx;

struct Tally {
  int models = 0, imported = 0, priced = 0;
  std::set<std::string> crashing;
};

void sweep(const pb::OpSchema& schema, Dice& dice, Tally& tally) {
  const int max_inputs = std::min(schema.max_input(), schema.min_input() + 2);
  for (int inputs = 0; inputs <= max_inputs; ++inputs) {
    for (const NodePlace place : {NodePlace::kTopLevel, NodePlace::kFunction, NodePlace::kIfBody}) {
      const pb::ModelProto model = one_operator_model(schema, inputs, place, dice);
      if (const char* kept = std::getenv("GRAPHPIPE_SWEEP_KEEP")) std::ofstream(kept) << model.SerializeAsString();
      bool crashed = false;
      const ModelFate fate = exercise_model(model.SerializeAsString(), frontend::Isolation::kSharedProcess, &crashed);
      tally.models += 1;
      tally.imported += fate != ModelFate::kRefused ? 1 : 0;
      tally.priced += fate == ModelFate::kPriced ? 1 : 0;
      if (crashed && tally.crashing.insert(schema.Name()).second) MESSAGE(model.ShortDebugString());
    }
  }
}

TEST_CASE("one node of every operator, with few operands and absurd attributes, at three places") {
  const char* wanted = std::getenv("GRAPHPIPE_SWEEP_ROUNDS");
  const size_t rounds = wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 1;
  Tally tally;
  for (size_t round = 0; round < rounds; ++round) {
    Dice dice(round + 1);
    const auto schemas =
        round == 0 ? pb::OpSchemaRegistry::get_all_schemas() : pb::OpSchemaRegistry::get_all_schemas_with_history();
    for (const pb::OpSchema& schema : schemas)
      if (schema.domain().empty() && !schema.Deprecated()) sweep(schema, dice, tally);
  }
  MESSAGE(tally.models << " models: " << tally.imported << " imported, " << tally.priced << " priced, ONNX's library "
                       << "crashed with " << tally.crashing.size() << " operators");
  CHECK(tally.models > 1500);
  // The sweep is not all refusals.
  CHECK(tally.priced > 50);
}

}  // namespace
}  // namespace graphpipe::tests
