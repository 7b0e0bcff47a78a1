// The reader of the text of graphs.
#include "ir/graph_text.h"
#include "ir/rewrite.h"
#include "ir/verify_graph.h"
#include "tests/fuzz/reader_checks.h"
#include "tests/fuzz/targets.h"
#include "tests/support/random_graph.h"

namespace graphpipe::tests {
namespace {

// What the verifier accepts, every helper must take.
void run_graph(std::string_view input) {
  check_round_trip(input, ir::parse_graph, ir::print_graph);
  const Result<ir::Graph> graph = ir::parse_graph(input);
  if (!graph.ok()) return;
  const Status verified = ir::verify_graph(*graph);
  check_problems(verified);
  if (!verified.ok()) return;
  const ir::Graph kept = ir::keep_nodes(*graph, ir::nodes_needed(*graph));
  GP_CHECK(ir::verify_graph(kept).ok());
}

std::vector<std::string> graph_seeds() {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 12; ++seed) seeds.push_back(ir::print_graph(random_graph(seed)));
  return seeds;
}

}  // namespace

FuzzTarget fuzz_graph_text() {
  return {"graph_text",
          run_graph,
          graph_seeds,
          {"%0", "%1", "n0", "p0", " @none", " @axis 0", "*B", "^2", "9223372036854775807", " phase I", " phase W",
           " serves n0", "inf", "nan", "_", "\"", "\\x00", "\n"}};
}

}  // namespace graphpipe::tests
