// Rows of relative positions that an exporter's optimiser has looked up beforehand are rows of one table again.

#include "frontend/looked_up_rows.h"

#include <set>

#include "ir/verify_graph.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

constexpr int kHeads = 2, kSide = 4;

/// As a table that was drawn has them, of no two rows or heads the same.
float drawn(int row, int head) { return 0.5F + 0.125F * static_cast<float>(row) - 7 * static_cast<float>(head); }

/// [1, heads, places, places], where `row` numbers the rows by places.
template <typename Row>
std::vector<float> biases(Row row) {
  std::vector<float> elements;
  for (int head = 0; head < kHeads; ++head)
    for (int i = 0; i < kSide; ++i)
      for (int j = 0; j < kSide; ++j) elements.push_back(drawn(row(i, j), head));
  return elements;
}

std::vector<float> by_distance() {
  return biases([](int i, int j) { return j - i + kSide - 1; });
}

constexpr const char* kMoved = "['t.weight', 'index', 'permute', 'view', 'clone', 'val_1', 'm.numbers']";
/// The calls of the numbers of T5's decoder.
constexpr const char* kBuckets =
    "['t.weight', 'embedding', 'permute', 'arange', 'arange_1', 'sub', 'minimum', 'neg', 'zeros_like', 'lt', "
    "'_to_copy', "
    "'div', 'log', 'div_1', 'mul', '_to_copy_1', 'add', 'full_like', 'minimum_1', 'where', 'add_1', "
    "'scalar_tensor_default', 'val_7'";

/// y = x + unsqueeze.
Result<Imported> biased(const std::string& note, const std::vector<float>& elements,
                        const std::string& arguments = "%x, %unsqueeze", const std::string& dims = "[1,2,4,4]",
                        const std::string& batch = "N") {
  return import_noted(
      exported_model(text("g (float[", batch, ",2,4,4] x, float", dims, " unsqueeze) => (float[", batch,
                          ",2,4,4] y) { y = Add(x, unsqueeze) }"),
                     {{"y", taken_by("add.Tensor", arguments)}}, {"t.weight", "u.weight", "buffer m.numbers"}),
      {{{"unsqueeze", note}}, {{"unsqueeze", elements}}, {}});
}

std::string floats_of(const std::vector<float>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float)};
}

}  // namespace

TEST_CASE("elements say which places read the same row") {
  const std::string bytes = floats_of(by_distance());
  const std::vector<int64_t> dims = {1, kHeads, kSide, kSide};
  const auto rows = rows_by_place(dims, bytes, sizeof(float));
  REQUIRE(rows);
  CHECK(rows->axis == 1);
  CHECK(rows->count == 2 * kSide - 1);
  CHECK(rows->numbers == std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 5, 4, 0, 1, 6, 5, 4, 0});
  CHECK(rows->repeats());
  CHECK(are_of_diagonals(dims, *rows));
  const auto row_of_first = [&](size_t axis_size) { return rows->elements.substr(0, axis_size * sizeof(float)); };
  CHECK(row_of_first(kHeads) == floats_of({drawn(kSide - 1, 0), drawn(kSide - 1, 1)}));
  CHECK_FALSE(rows_by_place({0, 2}, "", sizeof(float)));
  CHECK_FALSE(rows_by_place({1, 1}, floats_of({1}), sizeof(float)));
  CHECK_FALSE(rows_by_place({(1 << 19) + 1, 2}, std::string(((1 << 20) + 2) * sizeof(float), '\0'), sizeof(float)));
}

TEST_CASE("rows of relative positions train as one row each, wherever they are read") {
  for (const std::string& note : {std::string(kMoved), text(kBuckets, "]")}) {
    const auto imported = biased(note, by_distance());
    REQUIRE(imported.ok());
    CHECK(ir::verify_graph(imported->graph).ok());
    CHECK(trained(imported) == std::set<std::string>{"unsqueeze_rows"});
    CHECK(shape(imported->graph, "unsqueeze_rows") == "7 2 ");
    CHECK(reports(imported->notes, Code::kLostByExport, "one row of 't.weight'"));
    CHECK(reports(imported->notes, Code::kLostByExport, "under the names of values"));
  }
}

TEST_CASE("rows whose elements stand last need no order of their own") {
  const auto imported =
      import_noted(exported_model("g (float[N,3,2] x, float[3,2] index) => (float[N,3,2] y) { y = Add(x, index) }",
                                  {{"y", taken_by("add.Tensor", "%x, %index")}}, {"t.weight", "buffer m.numbers"}),
                   {{{"index", "['t.weight', 'm.numbers']"}}, {{"index", {1, 2, 3, 4, 1, 2}}}, {}});
  REQUIRE(imported.ok());
  CHECK(shape(imported->graph, "index_rows") == "2 2 ");
}

TEST_CASE("rows that a file with a fixed batch has once for each sample follow the batch") {
  std::vector<float> samples = by_distance();
  const std::vector<float> one = samples;
  samples.insert(samples.end(), one.begin(), one.end());
  const auto imported = biased("['t.weight', 'index', 'permute', 'expand', 'val_1', 'val_2']", samples,
                               "%x, %unsqueeze", "[2,2,4,4]", "2");
  REQUIRE(imported.ok());
  CHECK(shape(imported->graph, "unsqueeze_rows") == "7 2 ");
  CHECK(imported->graph.value(imported->graph.outputs()[0].value).type.shape[0] == ir::Dim::batch());
}

TEST_CASE("rows that calls may have computed with are refused") {
  CHECK(is_refused(biased("['t.weight', 'index', 'permute', 'mul']", by_distance())));
  CHECK(is_refused(biased("['t.weight', 'index', 'detach']", by_distance())));
  CHECK(is_refused(biased(text(kBuckets, ", 'mul_1']"), by_distance())));
  CHECK(is_refused(biased(text(kBuckets, ", 'm.numbers']"), by_distance())));
  CHECK(is_refused(biased("['t.weight', 'permute']", by_distance())));  // nothing was looked up
  CHECK(is_refused(biased("['t.weight', 'u.weight', 'index', 'permute']", by_distance())));
  // Numbers that are computed from relative positions are those of diagonals.
  const auto by_columns = biases([](int i, int j) { return i + 4 * (j / 2); });
  CHECK(is_refused(biased(text(kBuckets, "]"), by_columns)));
  CHECK(biased(kMoved, by_columns).ok());
}

TEST_CASE("rows whose axis is merged with places are refused") {
  // Of the rows 0 to 7 with two elements each, [[0, 1, 2], [3, 4, 5], [6, 7, 0]] as [3, 6]: row 0 stands twice.
  std::vector<float> merged;
  for (const int row : {0, 1, 2, 3, 4, 5, 6, 7, 0})
    for (int head = 0; head < 2; ++head) merged.push_back(drawn(row, head));
  CHECK_FALSE(rows_by_place({3, 6}, floats_of(merged), sizeof(float)));
  merged[16] = 40, merged[17] = 41;
  CHECK(rows_by_place({3, 6}, floats_of(merged), sizeof(float)));
  // Rows of one element in a square of places.
  CHECK_FALSE(rows_by_place({2, 2}, floats_of({1, 2, 3, 1}), sizeof(float)));
  CHECK_FALSE(rows_by_place({2, 2, 1, 1, 1, 1, 1, 1, 1}, floats_of({1, 2, 3, 4}), sizeof(float)));
}

TEST_CASE("a tensor that is itself a parameter by name is none that was looked up") {
  const auto imported =
      import_noted(exported_model("g (float[N,3,2] x, float[3,2] t) => (float[N,3,2] y) { y = Add(x, t) }",
                                  {{"y", taken_by("add.Tensor", "%x, %t")}}, {"t", "buffer m.numbers"}),
                   {{{"t", "['index', 'permute', 'val_1']"}}, {{"t", {1, 2, 3, 4, 1, 2}}}, {}});
  REQUIRE(imported.ok());
  CHECK_FALSE(reports(imported->notes, Code::kLostByExport, "one row of"));
}

TEST_CASE("equal rows that may have begun alike are refused") {
  // padding_idx keeps a row of zeros.
  std::vector<float> padded = by_distance();
  for (int head = 0; head < kHeads; ++head)
    for (int i = 0; i < kSide; ++i) padded[static_cast<size_t>((head * kSide + i) * kSide + i)] = 0;
  CHECK(is_refused(biased(kMoved, padded)));
  CHECK(is_refused(biased(kMoved, std::vector<float>(32, 0))));
  // A table whose rows are the distance to begin with is the same on both sides.
  CHECK(is_refused(biased(kMoved, biases([](int i, int j) { return std::abs(i - j); }))));
  // Rows of few different numbers may be equal by chance, and those of one head more so.
  std::vector<float> few = by_distance();
  for (float& element : few) element = element > 0 ? 1.0F : -1.0F;
  CHECK(is_refused(biased(kMoved, few)));
  CHECK(is_refused(
      import_noted(exported_model("g (float[N,2,1] x, float[2,1] index) => (float[N,2,1] y) { y = Add(x, index) }",
                                  {{"y", taken_by("add.Tensor", "%x, %index")}}, {"t.weight", "buffer m.numbers"}),
                   {{{"index", "['t.weight', 'm.numbers']"}}, {{"index", {1, 1}}}, {}})));
}

TEST_CASE("rows that may be of two tables, or are read beside the table, are refused") {
  CHECK(
      is_refused(biased(kMoved, by_distance(), "%x, %unsqueeze_1")));  // of another table, which began with equal rows
  CHECK(is_refused(biased(kMoved, by_distance(), "%x, %unsqueeze, %p_t.weight")));
}
