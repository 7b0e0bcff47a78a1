// The registry of losses, how they are written, and which labels of a model's own loss count.

#include <doctest/doctest.h>

#include <set>

#include "passes/losses/label_positions.h"
#include "passes/losses/registry.h"
#include "passes/pipeline.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

using Ranges = std::vector<wire::PositionRange>;

/// Labels "y" of this shape behind the operators that `rearrange` adds.
template <typename Rearrange>
std::optional<passes::LabelPositions> positions(const ir::Shape& shape, Rearrange rearrange, int64_t ignored = -100) {
  GraphMaker make;
  const auto labels = make.typed_input("y", ir::DType::kInt64, shape);
  const ir::ValueId label = rearrange(make, labels);
  return passes::label_positions(make.graph, label, ignored);
}

ir::ValueId slice(GraphMaker& make, ir::ValueId value, int64_t axis, int64_t start, int64_t end, int64_t step = 1) {
  using Ints = std::vector<int64_t>;
  return make.node("Slice", {value},
                   {{"axes", Ints{axis}}, {"starts", Ints{start}}, {"ends", Ints{end}}, {"steps", Ints{step}}});
}

ir::ValueId pad(GraphMaker& make, ir::ValueId value, std::vector<int64_t> pads, double fill) {
  return make.node("Pad", {value}, {{"pads", std::move(pads)}, {"value", fill}, {"mode", std::string("constant")}});
}

}  // namespace

TEST_CASE("every loss has a name of its own and is read as it is printed") {
  std::set<std::string_view> names;
  for (const passes::LossDef* loss : passes::all_losses()) {
    CAPTURE(loss->name);
    CHECK(names.insert(loss->name).second);
    CHECK(passes::find_loss(loss->name) == loss);
    CHECK(passes::loss_forms().find(passes::loss_form(*loss)) != std::string::npos);
    std::string flag = text(loss->name, loss->takes_label ? ":a,b" : ":a");
    for (const passes::LossOption& option : loss->options)
      flag += text(",", option.name, option.has_value ? text("=", option.high) : "");
    const auto spec = passes::parse_loss(flag);
    REQUIRE(spec.ok());
    CHECK(spec->kind == loss->name);
    CHECK(spec->label.empty() != loss->takes_label);
    CHECK(passes::print_loss(*spec) == flag);
  }
  CHECK(passes::parse_loss("")->kind.empty());
}

TEST_CASE("losses on the command line") {
  const auto loss = passes::parse_loss("cross_entropy:out,lab,axis=2,ignore=-1");
  REQUIRE(loss.ok());
  CHECK(loss->output == ModelText("out"));
  CHECK(loss->label == ModelText("lab"));
  CHECK(loss->options.get_int("ignore", 0) == -1);
  CHECK(loss->options.get_int("axis", 0) == 2);
  CHECK(passes::print_loss(*loss) == "cross_entropy:out,lab,ignore=-1,axis=2");
  const auto comma = passes::parse_loss("mse:a%2Cb,100%2C%252C%");
  REQUIRE(comma.ok());
  CHECK(comma->output == ModelText("a,b"));
  CHECK(comma->label == ModelText("100,%2C%"));
  CHECK(passes::print_loss(*comma) == "mse:a%2Cb,100%2C%252C%");
  CHECK(passes::parse_loss("mse:a,b,c").problems().front().hint.find("%2C") != std::string::npos);
  for (const char* bad : {"cross_entropy:out", "mse:", "mse:a,", "l1:a,b", "contrastive:s,l", "output:x,axis=1", "mse",
                          "output:x,sum=1", "output:x,sum,sum", "cross_entropy:a,b,axis", "cross_entropy:a,b,axis=64",
                          "cross_entropy:a,b,axis=-1", "cross_entropy:a,b,ignore=x"}) {
    CAPTURE(bad);
    const auto problem = passes::parse_loss(bad);
    REQUIRE_FALSE(problem.ok());
    CHECK(problem.problems().front().code == Code::kUsage);
  }
}

TEST_CASE("labels that are shifted, cut or turned: the elements of a sample that are left") {
  const auto shifted = positions({batch(), size(8)}, [](GraphMaker& make, ir::ValueId y) {
    const auto cut = slice(make, pad(make, y, {0, 0, 0, 1}, -100), 1, 1, 9);
    return make.node("Reshape", {cut}, {{"shape", ir::Shape{ir::Dim::batch(8)}}});
  });
  REQUIRE(shifted);
  CHECK(shifted->input == ModelText("y"));
  CHECK(shifted->counted == Ranges{{1, 8}});
  const auto all = positions({batch(), size(8)}, [](GraphMaker& make, ir::ValueId y) {
    return make.node("Cast", {make.node("Identity", {y})}, {{"to", std::string("i32")}});
  });
  REQUIRE(all);
  CHECK(all->counted.empty());
  // Of each of 3 rows the last of 4: elements 3, 7 and 11.
  const auto columns =
      positions({batch(), size(3), size(4)}, [](GraphMaker& make, ir::ValueId y) { return slice(make, y, 2, -1, 4); });
  REQUIRE(columns);
  CHECK(columns->counted == Ranges{{3, 4}, {7, 8}, {11, 12}});
  const auto turned = positions({batch(), size(3), size(4)}, [](GraphMaker& make, ir::ValueId y) {
    const auto t = make.node("Transpose", {y}, {{"perm", std::vector<int64_t>{2, 0, 1}}});
    return slice(make, t, 0, 1, 3);  // columns 1 and 2
  });
  REQUIRE(turned);
  CHECK(turned->counted == Ranges{{1, 3}, {5, 7}, {9, 11}});
  const auto strided =
      positions({batch(), size(5)}, [](GraphMaker& make, ir::ValueId y) { return slice(make, y, 1, 0, 5, 2); });
  REQUIRE(strided);
  CHECK(strided->counted == Ranges{{0, 1}, {2, 3}, {4, 5}});
  const auto cut = positions({batch(), size(5)}, [](GraphMaker& make, ir::ValueId y) {
    return pad(make, y, {0, -1, 0, -2}, 7);
  });
  REQUIRE(cut);
  CHECK(cut->counted == Ranges{{1, 3}});
}

TEST_CASE("elements are numbered with the batch axis in front, wherever it lies") {
  // y [3, B]: a sample is a column, and rows 1 and 2 are its elements 1 and 2.
  const auto columns =
      positions({size(3), batch()}, [](GraphMaker& make, ir::ValueId y) { return slice(make, y, 0, 1, 3); });
  REQUIRE(columns);
  CHECK(columns->counted == Ranges{{1, 3}});
  // y [2, 3*B]: three columns for each sample; element 2*i + j is row j of column i.
  const auto blocks =
      positions({size(2), ir::Dim::batch(3)}, [](GraphMaker& make, ir::ValueId y) { return slice(make, y, 0, 0, 1); });
  REQUIRE(blocks);
  CHECK(blocks->counted == Ranges{{0, 1}, {2, 3}, {4, 5}});
}

TEST_CASE("labels that are computed, padded with a class, or another value of the model are not followed") {
  const ir::Shape shape = {batch(), size(4)};
  CHECK_FALSE(positions(shape, [](GraphMaker& make, ir::ValueId y) { return make.node("Neg", {y}); }));
  CHECK_FALSE(positions(shape, [](GraphMaker& make, ir::ValueId y) { return pad(make, y, {0, 0, 0, 1}, 0); }));
  CHECK(positions(
      shape,
      [](GraphMaker& make, ir::ValueId y) {
        return pad(make, y, {0, 0, 0, 1}, 0);
      },
      0));
  CHECK_FALSE(positions(shape, [](GraphMaker& make, ir::ValueId y) {
    return make.node("Cast", {make.node("Cast", {y}, {{"to", std::string("f32")}})}, {{"to", std::string("i64")}});
  }));
  CHECK_FALSE(positions(shape, [](GraphMaker& make, ir::ValueId) { return make.weight("w", {size(4)}); }));
  CHECK_FALSE(positions({batch(), size(1 << 23)}, [](GraphMaker&, ir::ValueId y) { return y; }));
}
