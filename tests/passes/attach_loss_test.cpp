#include "passes/attach_loss.h"

#include <doctest/doctest.h>

#include "passes/losses/class_axis.h"
#include "passes/losses/registry.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

passes::PassContext context_of(const char* kind, Diagnostics* notes = nullptr) {
  passes::PassContext context;
  context.loss = {.kind = kind, .output = ModelText("y")};
  if (passes::find_loss(kind)->takes_label) context.loss.label = ModelText("label");
  context.notes = notes;
  return context;
}

/// A graph whose output "y" has the given shape and is made by `op` from an input of that shape.
ir::Graph output_of(const std::string& op, ir::Shape shape, ir::Attributes attributes = {}) {
  GraphMaker make;
  make.output(make.node(op, {make.input("x", std::move(shape))}, std::move(attributes)), "y");
  return std::move(make.graph);
}

const ir::Input* label_of(const ir::Graph& graph) {
  for (const ir::Input& input : graph.inputs())
    if (input.role == ir::InputRole::kLabel) return &input;
  return nullptr;
}

}  // namespace

TEST_CASE("the loss becomes the last output, scaled by an input of its own") {
  const auto result = passes::attach_loss(output_of("Relu", {batch(), size(3)}), context_of("cross_entropy"));
  REQUIRE(result.ok());
  REQUIRE(result->outputs().size() == 2);
  CHECK(result->outputs().front().role == ir::OutputRole::kModel);
  CHECK(result->outputs().back().role == ir::OutputRole::kLoss);
  CHECK(result->value(result->outputs().back().value).type.shape.empty());
  CHECK(result->inputs().back().role == ir::InputRole::kLossScale);
  const ir::Input* label = label_of(*result);
  REQUIRE(label);
  CHECK(result->value(label->value).type == ir::TensorType{ir::DType::kInt64, {batch()}});
}

TEST_CASE("outputs stay that the loss needs, also those whose axis of samples a later pass finds; others do not") {
  GraphMaker make;
  const ir::ValueId x = make.input("x", {batch(), size(3)});
  const ir::ValueId hidden = make.node("Tanh", {x});
  make.graph.value(hidden).batch = ir::BatchKind::kMixed;
  make.output(hidden, "hidden");
  make.output(make.node("Relu", {x}), "side");
  make.output(make.node("Relu", {hidden}), "y");
  const auto result = passes::attach_loss(std::move(make.graph), context_of("cross_entropy"));
  REQUIRE(result.ok());
  std::string names;
  for (const ir::Output& output : result->outputs()) names += output.name.raw() + " ";
  CHECK(names == "hidden y loss ");
}

TEST_CASE("the class axis follows from the rank, the label, or the operator that made the logits") {
  const auto axis_of = [](const ir::Graph& graph, ir::ValueId label = {}) {
    return passes::find_class_axis(graph, graph.outputs().front().value, label, context_of("cross_entropy").loss);
  };
  CHECK(*axis_of(output_of("Relu", {batch(), size(3)})) == 1);
  CHECK(*axis_of(output_of("Relu", {batch(), size(3), size(5), size(5)})) == 1);

  GraphMaker make;
  const auto x = make.input("x", {batch(), size(7), size(4)});
  make.output(
      make.node("Add", {make.node("MatMul", {x, make.weight("w", {size(4), size(9)})}), make.weight("b", {size(9)})}),
      "y");
  CHECK(*axis_of(make.graph) == 2);

  const auto behind_linear = [](const char* op, ir::Attributes attributes) {
    GraphMaker of;
    const auto in = of.input("x", {batch(), size(7), size(4)});
    const auto linear = of.node("MatMul", {in, of.weight("w", {size(4), size(9)})});
    of.output(of.node(op, {linear}, std::move(attributes)), "y");
    return of.graph;
  };
  const std::vector<int64_t> turned = {0, 2, 1};
  CHECK(*axis_of(behind_linear("Transpose", {{"perm", turned}})) == 1);
  const std::vector<int64_t> first = {0}, end = {8}, last = {2}, step = {1};
  CHECK(*axis_of(behind_linear("Slice", {{"starts", first}, {"ends", end}, {"axes", last}, {"steps", step}})) == 2);

  const ir::Graph three = output_of("Relu", {batch(), size(3), size(5)});
  const auto undecided = axis_of(three);
  REQUIRE(!undecided.ok());
  CHECK(undecided.problems().front().code == Code::kBadLoss);
  CHECK(undecided.problems().front().hint.find("axis=") != std::string::npos);
  ir::Graph with_label = three;
  const auto label = with_label.add_input({.name = ModelText("label"), .role = ir::InputRole::kLabel},
                                          {.type = {ir::DType::kInt64, {batch(), size(5)}}});
  CHECK(*axis_of(with_label, label) == 1);
}

TEST_CASE("a class axis that the user names is taken, and checked") {
  passes::PassContext context = context_of("cross_entropy");
  context.loss.options.set("axis", int64_t{2});
  const auto last = passes::attach_loss(output_of("Relu", {batch(), size(3), size(5)}), context);
  REQUIRE(last.ok());
  CHECK(last->value(label_of(*last)->value).type.shape == ir::Shape{batch(), size(3)});
  context.loss.options.set("axis", int64_t{0});
  CHECK(!passes::attach_loss(output_of("Relu", {batch(), size(3), size(5)}), context).ok());
  context.loss.options.set("axis", int64_t{7});
  CHECK(!passes::attach_loss(output_of("Relu", {batch(), size(3), size(5)}), context).ok());
}

TEST_CASE("rows of a flattened sequence read a label of [B, T]") {
  const auto result = passes::attach_loss(output_of("Relu", {ir::Dim::batch(6), size(3)}), context_of("cross_entropy"));
  REQUIRE(result.ok());
  CHECK(result->value(label_of(*result)->value).type.shape == ir::Shape{batch(), size(6)});
}

TEST_CASE("a last Softmax or Sigmoid is reported") {
  Diagnostics notes;
  CHECK(passes::attach_loss(output_of("Softmax", {batch(), size(3)}, {{"axis", int64_t{1}}}),
                            context_of("cross_entropy", &notes))
            .ok());
  CHECK(passes::attach_loss(output_of("Sigmoid", {batch(), size(3)}), context_of("bce", &notes)).ok());
  CHECK(passes::attach_loss(output_of("Sigmoid", {batch(), size(3)}), context_of("mse", &notes)).ok());
  CHECK(notes.size() == 2);
}

TEST_CASE("what does not fit is refused with the outputs or the shape that would") {
  passes::PassContext context = context_of("mse");
  context.loss.output = ModelText("nothing");
  const auto missing = passes::attach_loss(output_of("Relu", {batch(), size(3)}), context);
  REQUIRE(!missing.ok());
  CHECK(missing.problems().front().hint.find("'y'") != std::string::npos);
  CHECK(!passes::attach_loss(output_of("Relu", {batch(), size(3)}), context_of("contrastive")).ok());
  CHECK(!passes::attach_loss(output_of("Relu", {batch(), size(3)}), context_of("output")).ok());
  context = context_of("mse");
  context.loss.label = ModelText();
  CHECK(!passes::attach_loss(output_of("Relu", {batch(), size(3)}), context).ok());
}

TEST_CASE("a mean over elements needs a fixed number of them per sample") {
  const auto stated = passes::attach_loss(output_of("Relu", {batch(), size(3), size(5)}), context_of("mse"));
  REQUIRE(stated.ok());
  CHECK(stated->loss()->elements_per_sample == 15);
  for (const char* kind : {"mse", "bce"}) {
    CHECK(!passes::attach_loss(output_of("Relu", {batch(), batch()}), context_of(kind)).ok());
    CHECK(!passes::attach_loss(output_of("Relu", {size(3)}), context_of(kind)).ok());
  }
}

TEST_CASE("a loss of a model without outputs says what the model lacks") {
  const auto result = passes::attach_loss(ir::Graph(), context_of("mse"));
  REQUIRE(!result.ok());
  CHECK(result.problems().front().hint == "export the model with an output");
}

TEST_CASE("a spec that no flag gives is refused: an unknown kind, a label too many, an option of another loss") {
  const auto refused = [](ir::LossSpec spec) {
    passes::PassContext context;
    context.loss = std::move(spec);
    const auto result = passes::attach_loss(output_of("Relu", {batch(), size(3)}), context);
    return !result.ok() && result.problems().front().code == Code::kBadLoss;
  };
  const ModelText y("y"), label("label");
  CHECK_FALSE(refused({.kind = "mse", .output = y, .label = label}));
  CHECK(refused({.kind = "absolute", .output = y, .label = label}));
  CHECK(refused({.kind = "mse", .output = y}));
  CHECK(refused({.kind = "contrastive", .output = y, .label = label}));
  CHECK(refused({.kind = "mse", .output = y, .label = label, .options = {{"ignore", int64_t{1}}}}));
  CHECK(refused({.kind = "cross_entropy", .output = y, .label = label, .options = {{"axis", int64_t{-1}}}}));
}

TEST_CASE("a similarity of all samples with all trains contrastively") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  const auto t = make.node("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}});
  make.output(make.node("MatMul", {x, t}), "y");
  const auto result = passes::attach_loss(std::move(make.graph), context_of("contrastive"));
  REQUIRE(result.ok());
  CHECK(label_of(*result) == nullptr);
}
