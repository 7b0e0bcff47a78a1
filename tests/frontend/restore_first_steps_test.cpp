// The first step of a recurrent cell reads its bias again, which an exporter's optimiser had computed beforehand.

#include "frontend/restore_first_steps.h"

#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// Two steps of h = linear(h, w, b) + x for three samples, of which the first begins with zeros.
Result<Imported> two_steps(const std::string& note, const std::vector<float>& first,
                           const std::string& first_taken = "%x, %linear",
                           const std::vector<float>& weight = {1, 2, 3, 4}) {
  return import_noted(
      exported_model("g (float[3,2] x, float[3,2] linear, float[2,2] w, float[2] b, float[2] b2) => (float[3,2] y) { a "
                     "= Add(x, linear) l = Gemm<transB = 1>(a, w, b) u = Add(l, x) y = Mul(u, b2) }",
                     {{"a", taken_by("add.Tensor", first_taken)},
                      {"l", taken_by("linear.default", "%a, %p_w, %p_b")},
                      {"u", taken_by("add.Tensor", "%l, %x")},
                      {"y", taken_by("mul.Tensor", "%u, %p_b2")}},
                     {"w", "b", "b2", "buffer c"}),
      {{{"linear", note}}, {{"linear", first}, {"w", weight}, {"b", {5, 6}}, {"b2", {7, 8}}}, {}});
}

const std::vector<float> kBiasOfEach = {5, 6, 5, 6, 5, 6};

}  // namespace

TEST_CASE("what zeros leave of a linear layer is its bias, for any batch") {
  const auto imported = two_steps("['b', 'w', 'val_3', 'zeros']", kBiasOfEach);
  CHECK(trained(imported) == std::set<std::string>{"w", "b", "b2"});
  CHECK(nodes_of(imported).find("f32[B,2]") != std::string::npos);
  CHECK(two_steps("['b', 'getitem', 'unsqueeze', 'w', 'zeros_1']", kBiasOfEach).ok());
  CHECK(two_steps("['b', 'new_zeros_1', 'w']", kBiasOfEach).ok());
  CHECK(two_steps("['b', 'full', 'w']", kBiasOfEach).ok());
}

TEST_CASE("the result stays where zeros and the layer are not all that it was computed from") {
  for (const char* note : {"['b', 'w', 'val_3']", "['b', 'w', 'zeros', 'ones']", "['b', 'w', 'zeros', 'c']",
                           "['b', 'zeros']", "['b', 'b2', 'w', 'zeros']", "['w', 'zeros']", "['b2', 'w', 'zeros']"})
    CHECK_FALSE(two_steps(note, kBiasOfEach).ok());
  CHECK_FALSE(two_steps("['b', 'w', 'zeros']", {5, 6, 5, 6, 5, 7}).ok());
  // Ones may leave the bias as well.
  CHECK_FALSE(two_steps("['b', 'full', 'w']", kBiasOfEach, "%x, %linear", {1, -1, -2, 2}).ok());
  // It may be that of another layer, of which the bias began alike.
  CHECK_FALSE(two_steps("['b', 'w', 'zeros']", kBiasOfEach, "%x, %linear_4").ok());
}
