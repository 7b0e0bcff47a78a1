#include <cmath>

#include "frontend/resize_weights.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

struct Case {
  ResizeForm form;
  ResizedAxis axis;
  /// By ONNX's reference implementation (1.23.2).
  std::vector<double> expected;
};

/// The input of the recorded results: 7 i mod 5 + i / 4.
std::vector<double> input_of(int64_t cells) {
  std::vector<double> input;
  for (int64_t i = 0; i < cells; ++i) input.push_back(static_cast<double>(7 * i % 5) + static_cast<double>(i) / 4);
  return input;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {{"linear", "align_corners", "round_prefer_floor", -0.75, false, false},
       {4, 2, 0.60000002384185791, 0, 1},
       {0, 4.10714326}},
      {{"cubic", "align_corners", "round_prefer_floor", -0.75, false, false},
       {4, 3, 0.80000001192092896, 0, 1},
       {0, 3.45473245, 2.52930176}},
      {{"linear", "half_pixel", "round_prefer_floor", -0.75, true, false},
       {5, 3, 0.60000002384185791, 0, 1},
       {0.843749969, 3.38888891, 3.15624985}},
      {{"cubic", "half_pixel", "round_prefer_floor", -0.75, true, false},
       {6, 3, 0.60000002384185791, 0, 1},
       {0.900000334, 3.52738343, 2.94759004}},
      {{"cubic", "half_pixel", "round_prefer_floor", -0.75, true, true},
       {6, 3, 0.5, 0, 1},
       {1.50623701, 3.37971698, 2.40488565}},
      {{"cubic", "half_pixel", "round_prefer_floor", -0.5, false, true},
       {4, 8, 2, 0, 1},
       {-0.198529412, 0.377737226, 1.59732824, 2.9296875, 4.2890625, 4.04580153, 2.32116788, 1.50735294}},
      {{"cubic", "asymmetric", "round_prefer_floor", -0.75, false, false},
       {4, 6, 1.5, 0, 1},
       {0, 1.29166643, 3.36111073, 4.5, 2.74074014, 1.44444378}},
      {{"linear", "half_pixel_symmetric", "round_prefer_floor", -0.75, false, false},
       {5, 6, 1.2999999523162842, 0, 1},
       {0.173076764, 1.90384606, 3.63461535, 3.44230765, 2.09615394, 3.82692324}},
      {{"linear", "pytorch_half_pixel", "round_prefer_floor", -0.75, false, false}, {4, 1, 0.25, 0, 1}, {0}},
      {{"linear", "tf_crop_and_resize", "round_prefer_floor", -0.75, false, false},
       {5, 4, 0.80000000000000004, 0.4, 0.9},
       {3.6, 3.76666667, 1.93333333, 3.1}},
      {{"nearest", "half_pixel", "floor", -0.75, false, false}, {4, 6, 1.5, 0, 1}, {0, 0, 2.25, 2.25, 4.5, 1.75}},
      {{"nearest", "half_pixel", "ceil", -0.75, false, false}, {4, 6, 1.5, 0, 1}, {0, 2.25, 4.5, 4.5, 1.75, 1.75}},
      {{"nearest", "half_pixel", "round_prefer_floor", -0.75, false, false},
       {4, 6, 1.5, 0, 1},
       {0, 0, 2.25, 4.5, 4.5, 1.75}},
      {{"nearest", "half_pixel", "round_prefer_ceil", -0.75, false, false},
       {4, 6, 1.5, 0, 1},
       {0, 2.25, 2.25, 4.5, 1.75, 1.75}},
      {{"nearest", "align_corners", "floor", -0.75, false, false},
       {4, 7, 1.75, 0, 1},
       {0, 0, 2.25, 2.25, 4.5, 4.5, 1.75}},
      {{"nearest", "asymmetric", "ceil", -0.75, false, false}, {6, 4, 0.69999998807907104, 0, 1}, {0, 4.5, 1.75, 1.25}},
  };
  return kCases;
}

}  // namespace

TEST_CASE("the weights of one axis give what ONNX's reference gives") {
  for (size_t number = 0; number < cases().size(); ++number) {
    CAPTURE(number);
    const Case& item = cases()[number];
    REQUIRE(has_resize_weights(item.form));
    const ResizeWeights weights = resize_weights(item.form, item.axis);
    const std::vector<double> input = input_of(item.axis.before);
    const size_t columns = item.expected.size();
    REQUIRE(weights.matrix.size() == input.size() * columns);
    for (size_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (size_t row = 0; row < input.size(); ++row) sum += input[row] * weights.matrix[row * columns + column];
      CHECK(std::abs(sum - item.expected[column]) < 1e-5);
    }
  }
}

TEST_CASE("the weights of each cell add up to one, but for cells outside of a crop") {
  for (const Case& item : cases()) {
    ResizedAxis axis = item.axis;
    axis.crop_start = -0.5;
    const ResizeWeights weights = resize_weights(item.form, axis);
    const auto columns = static_cast<size_t>(axis.after);
    for (size_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (size_t row = 0; row < static_cast<size_t>(axis.before); ++row) sum += weights.matrix[row * columns + column];
      CHECK(std::abs(sum - (weights.outside[column] ? 0 : 1)) < 1e-9);
    }
  }
}

TEST_CASE("scaled corners are aligned by matrices, whole ones by ATen's function") {
  const auto scaled = [](const std::string& scale) {
    return nodes_of(
        import_text("g (float[N,1,2,4] x) => (float[N,1,P,Q] y) { r = Constant<value_floats = [0.0]>() s = "
                    "Constant<value_floats = [1.0, 1.0, " +
                    scale +
                    "]>() y = Resize<mode = \"linear\", coordinate_transformation_mode = "
                    "\"align_corners\">(x, , s) }"));
  };
  CHECK(scaled("2.0, 1.5").starts_with("Resize"));
  CHECK(scaled("0.6, 0.6").find("MatMul") != std::string::npos);
  CHECK(scaled("0.6, 0.6").find("Resize") == std::string::npos);
}

TEST_CASE("forms of Resize that ATen has not, over axes that are named") {
  const auto resized = [](const std::string& attributes, const std::string& rest) {
    return import_text(
        "g (float[N,3,6,5] x) => (float[N,3,P,Q] y) { s = Constant<value_floats = [0.5, 0.8]>() z = "
        "Constant<value_ints = [4, 9]>() roi = Constant<value_floats = [0.1, 0.2, 1.3, 0.8]>() y = "
        "Resize<" +
        attributes + ">(x, " + rest + ") }");
  };
  for (const char* attributes :
       {"mode = \"linear\", antialias = 1, axes = [2, 3]", "mode = \"cubic\", exclude_outside = 1, axes = [-1, 2]",
        "mode = \"nearest\", nearest_mode = \"ceil\", axes = [3, 2]"})
    CHECK(nodes_of(resized(attributes, ", s")).find("MatMul") != std::string::npos);
  const std::string kept =
      nodes_of(resized("mode = \"linear\", keep_aspect_ratio_policy = \"not_larger\", axes = [2, 3]", ", , z"));
  CHECK(kept.find("[B,3,4,3]") != std::string::npos);  // 2/3 of both, and not 9/5
  const std::string crop =
      nodes_of(resized("mode = \"linear\", coordinate_transformation_mode = "
                       "\"tf_crop_and_resize\", extrapolation_value = 7.0, axes = [2, 3]",
                       "roi, , z"));
  CHECK(crop.find("Add") != std::string::npos);
  CHECK(reports(resized("mode = \"linear\", antialias = 1, axes = [0, 3]", ", s").problems(), Code::kMixesSamples,
                "samples"));
  CHECK(reports(resized("mode = \"linear\", axes = [2, 2]", ", s").problems(), Code::kBadModel, "twice"));
  CHECK(reports(resized("mode = \"spline\", axes = [2, 3]", ", s").problems(), Code::kUnsupportedOp, "mode"));
}

TEST_CASE("in a file with a fixed batch, the sizes of a Resize hold it") {
  const auto resized = [](const std::string& samples) {
    return import_text("g (float[4,3,6,5] x) => (float[4,3,12,5] y) { z = Constant<value_ints = [" + samples +
                       ", 3, 12, 5]>() y = Resize<mode = \"linear\", antialias = 1>(x, , , z) }");
  };
  CHECK(nodes_of(resized("4")).find("[B,3,12,5]") != std::string::npos);
  CHECK(reports(resized("8").problems(), Code::kMixesSamples, "samples"));
}

TEST_CASE("random numbers are of the type that the node names") {
  CHECK(nodes_of(import_text("g (float[N,3] p) => (double[N,3] y) { y = Bernoulli<dtype = 11>(p) }")).find("f64") !=
        std::string::npos);
  for (const char* op : {"RandomUniformLike", "RandomNormalLike"})
    CHECK(nodes_of(import_text(text("g (float[N,3] x) => (double[N,3] y) { y = ", op, "<dtype = 11>(x) }")))
              .find("f64") != std::string::npos);
  CHECK(reports(import_text("g (float[N,3] p) => (string[N,3] y) { y = Bernoulli<dtype = 8>(p) }").problems(),
                Code::kUnsupportedType, "string"));
}
