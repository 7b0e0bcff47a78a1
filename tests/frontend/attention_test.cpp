// ONNX's Attention is read by its function body; what that computes in vain is left out.

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::contains;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;

namespace {

/// Of a producer that is not PyTorch: there a filled tensor may be a weight.
constexpr const char* kHead = "<ir_version: 10, opset_import: [\"\" : 23], producer_name: \"test\">";

bool trains_nothing(const frontend::Imported& model) {
  for (const ir::ParamId id : model.graph.param_ids())
    if (model.graph.param(id).trainable) return false;
  return true;
}

}  // namespace

TEST_CASE("an Attention without a mask is two products and a softmax, and its empty mask is no parameter") {
  const auto plain = import_text(std::string(kHead) + R"(g (float[N,64,8] q, float[N,80,8] k) => (float[N,64,8] y)
    { y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, k) })");
  REQUIRE(plain.ok());
  CHECK(trains_nothing(*plain));
  const std::string nodes = nodes_of(plain);
  CAPTURE(nodes);
  CHECK(contains(nodes, "Softmax("));
  for (const char* op : {"Where(", "Equal(", "ReduceMax(", "Add("}) CHECK_FALSE(contains(nodes, op));
}

TEST_CASE("rows that see nothing are kept apart where a mask may hide all") {
  const auto masked = import_text(std::string(kHead) + R"(g (float[N,64,8] q, bool[64,64] sees) => (float[N,64,8] y)
    { y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, q, q, sees) })");
  REQUIRE(masked.ok());
  CHECK(contains(nodes_of(masked), "ReduceMax("));
}

TEST_CASE("an Attention behind a GroupNormalization, of whose output ONNX's inference says nothing") {
  const auto behind = import_text(std::string(kHead) + R"(g (float[N,8,64] x) => (float[N,8,64] y)
    <float[8] scale = {1, 1, 1, 1, 1, 1, 1, 1}, float[8] bias = {0, 0, 0, 0, 0, 0, 0, 0}> {
    q = GroupNormalization<num_groups = 4>(x, scale, bias)
    y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, q, q) })");
  REQUIRE(behind.ok());
  CHECK(contains(nodes_of(behind), "GroupNormalization("));
  CHECK(contains(nodes_of(behind), "Softmax("));
}
