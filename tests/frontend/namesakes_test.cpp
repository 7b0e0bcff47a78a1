// Inputs that have the name of a parameter.

#include <doctest/doctest.h>

#include "tests/support/exported_models.h"
#include "tests/support/weighted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// A product with a parameter of this name in the file, to which an input "gain" of these dims is added.
bool is_mistaken(const std::string& tensor, const std::string& dims, const std::string& listed) {
  graphpipe_onnx::ModelProto model;
  model.ParseFromString(exported_model(
      text("g (float[N,4] x, float[4] ", tensor, ") => (float[N,4] y) { a = Mul(x, ", tensor, ") y = Add(a, x) }"),
      {{"a", text("mul.Tensor](args = (%x, %p_", listed, "), kwargs = {})")}}, {listed}));
  graphpipe_onnx::ModelProto other =
      parse_onnx_text(text("g (float", dims, " gain) => (float", dims, " z) { z = Neg(gain) }"));
  *model.mutable_graph()->add_input() = other.graph().input(0);
  model.mutable_graph()->mutable_node(1)->set_input(1, "gain");
  const auto imported = import_bytes(model.SerializeAsString(), {});
  return !imported.ok() && reports(imported.problems(), Code::kBadModel, "the input has the name of a parameter");
}

}  // namespace

TEST_CASE("an input that a parameter has the name of is refused, unless the parameter is its default") {
  CHECK(is_mistaken("gain", "[N,4]", "gain"));
  CHECK(is_mistaken("gain_1", "[N,4]", "gain"));
  CHECK_FALSE(is_mistaken("gain", "[4]", "gain"));
  CHECK_FALSE(is_mistaken("gain_1", "[N,4]", "buffer gain"));
  CHECK_FALSE(is_mistaken("scale_1", "[N,4]", "scale_1"));
  CHECK_FALSE(is_mistaken("gain_1", "[N,4]", "gain_1"));
}

TEST_CASE("weights among the inputs may have sizes with names, as other exporters write them") {
  graphpipe_onnx::ModelProto model =
      model_with("g (float[N,4] x, float[4,4] w) => (float[N,4] y) { y = MatMul(x, w) }", {{"w", {4, 4}}});
  for (auto& dim :
       *model.mutable_graph()->mutable_input(1)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
    dim.set_dim_param("size");
  const auto imported = import_bytes(model.SerializeAsString(), {});
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  CHECK(imported.ok());
}
