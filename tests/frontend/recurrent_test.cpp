// Recurrent layers: which axis is the batch, and forms that become steps.

#include <algorithm>

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

namespace {

/// A parameter, filled.
std::string weight(const std::string& name, const std::string& shape) {
  return name + "_shape = Constant<value_ints = [" + shape + "]>() " + name + " = ConstantOfShape(" + name + "_shape) ";
}

/// A node with weights for inputs of 2 and H = 3; `gates` of it.
std::string recurrent_model(const std::string& node, const std::string& x, const std::string& y, int gates,
                            const std::string& more = "") {
  const std::string rows = "1," + std::to_string(3 * gates);
  return "g (" + x + ") => (" + y + ") { " + weight("w", rows + ",2") + weight("r", rows + ",3") + more + node + " }";
}

size_t count_of(const std::string& nodes, const std::string& op) {
  size_t count = 0;
  for (size_t at = nodes.find(op + "("); at != std::string::npos; at = nodes.find(op + "(", at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("the batch of a sequence with fixed sizes is its second axis, where a recurrent node reads it") {
  const auto imported =
      import_text(recurrent_model("y, h = LSTM<hidden_size = 3>(x, w, r)", "float[5,4,2] x", "float[5,1,4,3] y", 4));
  REQUIRE(imported.ok());
  CHECK(imported->traced_batch == 4);
  CHECK(nodes_of(imported).find("f32[5,1,B,3]") != std::string::npos);
}

TEST_CASE("layout 1 turns the sequence, its first states and the results") {
  const auto imported = import_text(
      recurrent_model("y, h = LSTM<hidden_size = 3, layout = 1>(x, w, r)", "float[N,5,2] x", "float[N,5,1,3] y", 4));
  const std::string nodes = nodes_of(imported);
  CHECK(nodes.find("Transpose(%0) {perm=[1,0,2]} : f32[5,B,2]") != std::string::npos);
  CHECK(nodes.find("{perm=[2,0,1,3]} : f32[B,5,1,3]") != std::string::npos);
  const auto without_steps = import_text(
      recurrent_model("y, h = GRU<hidden_size = 3, layout = 1>(x, w, r)", "float[N,2,2] x", "float[N,2,1,3] y", 3));
  CHECK(nodes_of(without_steps).find("f32[B,2,1,3]") != std::string::npos);
}

TEST_CASE("peepholes make a cell of its steps, and peepholes of zeros none") {
  const std::string node = R"(y, h, c = LSTM<hidden_size = 3>(x, w, r, "", "", "", "", p))";
  const auto imported =
      import_text(recurrent_model(node, "float[2,N,2] x", "float[2,1,N,3] y, float[1,N,3] c", 4, weight("p", "1,9")));
  const std::string nodes = nodes_of(imported);
  CHECK(count_of(nodes, "LSTM") == 0);
  // The first step has no cell to forget.
  CHECK(count_of(nodes, "Sigmoid") == 5);
  CHECK(count_of(nodes, "Tanh") == 4);
}

TEST_CASE("sequences of different length make steps that keep what has ended") {
  const std::string node = R"(y, h = GRU<hidden_size = 3, linear_before_reset = 1>(x, w, r, "", lengths))";
  const std::string nodes = nodes_of(
      import_text(recurrent_model(node, "float[2,N,2] x, int32[N] lengths", "float[2,1,N,3] y, float[1,N,3] h", 3)));
  CHECK(count_of(nodes, "GRU") == 0);
  CHECK(count_of(nodes, "Less") == 2);
  // A result and a state of each step.
  CHECK(count_of(nodes, "Where") == 4);
}

TEST_CASE("the steps of unrolled layers count as those of loops do") {
  const std::string node = "y, h = GRU<hidden_size = 3>(x, w, r) z, h2 = GRU<hidden_size = 3>(x, w, r)";
  const std::string model = recurrent_model(node, "float[4,N,2] x", "float[4,1,N,3] y, float[4,1,N,3] z", 3);
  ImportRequest request;
  request.limits.unrolled_nodes = 48;
  CHECK(reports(import_text(model, request).problems(), Code::kLimitExceeded, "linear_before_reset"));
  request.limits.unrolled_nodes = 96;
  CHECK(import_text(model, request).ok());
}

TEST_CASE("an LSTM whose projection the exporter has left out is refused") {
  // The weights are cut as those of a state of 3, the size of the projection.
  const auto exported = [](const std::string& weights, const std::string& more) {
    graphpipe_onnx::ModelProto model = graphpipe::testing::parse_onnx_text(
        recurrent_model("y, h, c = LSTM<hidden_size = 3>(x, w, r)", "float[5,N,2] x", "float[5,1,N,3] y", 4));
    for (auto& node : *model.mutable_graph()->mutable_node()) {
      auto& note = *node.add_metadata_props();
      note.set_key("pkg.torch.onnx.fx_node");
      note.set_value("%y : [num_users=1] = call_function[target=torch.ops.aten.lstm.input](args = (%x, [%h, %c], [" +
                     weights + "], " + more + ", False, False), kwargs = {})");
    }
    return graphpipe::testing::import_bytes(model.SerializeAsString());
  };
  CHECK(exported("%w, %r", "False, 1, 0.0, True").ok());
  CHECK(exported("%w, %r, %b, %d", "True, 1, 0.0, True").ok());
  CHECK(exported("%w, %r, %v, %q", "False, 2, 0.0, True").ok());
  for (const auto& refused :
       {exported("%w, %r, %p", "False, 1, 0.0, True"), exported("%w, %r, %b, %d, %p", "True, 1, 0.0, True")}) {
    REQUIRE(!refused.ok());
    CHECK(reports(refused.problems(), Code::kLostByExport, "proj_size"));
  }
}
