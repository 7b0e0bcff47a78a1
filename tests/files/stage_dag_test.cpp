#include "files/stage_dag.h"

#include <doctest/doctest.h>

using namespace graphpipe;
using namespace graphpipe::files;

namespace {

std::string refusal(const std::string& text) {
  const auto dag = parse_stage_dag(text);
  REQUIRE_FALSE(dag.ok());
  return dag.problems().front().message;
}

}  // namespace

TEST_CASE("a stage graph says what it wants and leaves out the rest") {
  const auto minimal = parse_stage_dag(R"({"predecessors": [[], [0]], "noted": [1, 2]})");
  REQUIRE(minimal.ok());
  CHECK(minimal->micro_batch_size == std::vector<int64_t>{1, 1});
  CHECK(minimal->k == std::vector<int>{1, 1});
  CHECK(minimal->batch == 0);
  CHECK(minimal->forward.empty());
  CHECK_FALSE(minimal->latency.has_value());
  const auto full = parse_stage_dag(R"({"predecessors": [[], [0], [0, 1]], "micro_batch_size": [1, 2, 4], "k": 2,
      "batch": 16, "cost_per_sample": {"forward": 1, "backward": [2, 2, 3]}, "latency": 0.5})");
  REQUIRE(full.ok());
  CHECK(full->predecessors[2] == std::vector<int>{0, 1});
  CHECK(full->k == std::vector<int>{2, 2, 2});
  CHECK(full->per_sample);
  CHECK(full->backward == std::vector<double>{2, 2, 3});
  CHECK(full->latency == 0.5);
  const auto counted = parse_stage_dag(R"({"predecessors": [[]], "micro_batch_size": 3, "micro_batches": 4})");
  REQUIRE(counted.ok());
  CHECK(counted->batch == 12);
  CHECK(counted->devices() == 1);
  const auto copied = parse_stage_dag(R"({"predecessors": [[], []], "replicas": [3, 1]})");
  REQUIRE(copied.ok());
  CHECK(copied->replicas == std::vector<int>{3, 1});
  CHECK(copied->devices() == 4);
}

TEST_CASE("a stage graph that makes no sense is refused with the member's name") {
  CHECK(refusal("[]").starts_with("a stage graph is one JSON object"));
  CHECK(refusal("{}").starts_with("predecessors"));
  CHECK(refusal(R"({"predecessors": [[0]]})").starts_with("predecessors[0]"));
  CHECK(refusal(R"({"predecessors": [[], [0, 0]]})").starts_with("predecessors[1]"));
  CHECK(refusal(R"({"predecessors": [[]], "micro_batch_size": [1, 2]})").starts_with("micro_batch_size"));
  CHECK(refusal(R"({"predecessors": [[]], "micro_batch_size": 0})").starts_with("micro_batch_size"));
  CHECK(refusal(R"({"predecessors": [[]], "batch": 2, "micro_batch_size": 3})").starts_with("micro_batch_size"));
  CHECK(refusal(R"({"predecessors": [[]], "batch": "two"})").starts_with("batch"));
  CHECK(
      refusal(R"({"predecessors": [[], []], "micro_batch_size": [1, 2], "micro_batches": 4})").starts_with("micro_b"));
  CHECK(refusal(R"({"predecessors": [[]], "forward": [-1]})").starts_with("forward"));
  CHECK(refusal(R"({"predecessors": [[]], "backward": [1, 2]})").starts_with("backward"));
  CHECK(refusal(R"({"predecessors": [[]], "latency": "late"})").starts_with("latency"));
  CHECK(refusal(R"({"predecessors": [[]], "k": 1.5})").starts_with("k"));
  CHECK(refusal(R"({"predecessors": [[]], "replicas": 0})").starts_with("replicas"));
  CHECK(refusal(R"({"predecessors": [[], []], "replicas": [20000, 1]})").starts_with("replicas"));
}
