// Recurrent layers get the parameters back that an exporter's optimiser has packed beforehand.

#include "frontend/restore_recurrent.h"

#include <algorithm>
#include <numeric>

#include "frontend/export_onnx.h"
#include "tests/support/count_ops.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

std::vector<float> counted(size_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  return numbers;
}

const std::string kLayerWeights = "%p_w, %p_r", kLayerBiases = ", %p_b, %p_d";

/// One layer of width 1 with 1 input, whose operands hold 0, 1, ..
Notes packed_notes(size_t gates) {
  return {{{"val_1", "['w', 'val_9']"}, {"val_2", "['r']"}, {"val_3", "['b', 'd']"}},
          {{"val_1", counted(gates)}, {"val_2", counted(gates)}, {"val_3", counted(2 * gates)}},
          {}};
}

std::string one_layer(const std::string& op, const std::string& target, size_t gates, const std::string& call,
                      const std::string& more = "") {
  const std::string more_node = more.empty() ? "" : " z = Relu(val_1)";
  return exported_model(
      text("g (float[5,N,1] x, float[1,", gates, ",1] val_1, float[1,", gates, ",1] val_2, float[1,", 2 * gates,
           "] val_3", more, ") => (float[5,1,N,1] y) { y, h = ", op, "<hidden_size = 1",
           op == "GRU" ? ", linear_before_reset = 1" : "", ">(x, val_1, val_2, val_3)", more_node, " }"),
      {{"y", taken_by(target, call)}}, {"w", "r", "b", "d"});
}

Result<Imported> import_lstm(const std::string& call, const Notes& notes = packed_notes(4),
                             const std::string& rules = "") {
  return import_noted(one_layer("LSTM", "lstm.input", 4, call), notes, rules);
}

const std::string kLstmCall =
    "%x, [%zeros, %zeros_1], [" + kLayerWeights + kLayerBiases + "], True, 1, 0.0, True, False, False";

}  // namespace

TEST_CASE("an LSTM has its parameters, with their gates in PyTorch's order") {
  const auto imported = import_lstm(kLstmCall);
  CHECK(trained(imported) == std::set<std::string>{"w", "r", "b", "d"});
  CHECK(shape(imported->graph, "w") == "4 1 ");
  CHECK(shape(imported->graph, "b") == "4 ");
  // i, f, c, o of i, o, f, c
  CHECK(elements(imported->graph, "w") == std::vector<float>{0, 2, 3, 1});
  CHECK(elements(imported->graph, "b") == std::vector<float>{0, 2, 3, 1});
  CHECK(elements(imported->graph, "d") == std::vector<float>{4, 6, 7, 5});
  CHECK(reports(imported->notes, Code::kLostByExport, "4 tensors of the module"));
}

TEST_CASE("a GRU has its parameters too, and keeps weights that the file has whole") {
  const std::string call = "%x, %zeros, [" + kLayerWeights + kLayerBiases + "], True, 1, 0.0, True, False, False";
  const auto imported = import_noted(one_layer("GRU", "gru.input", 3, call), packed_notes(3));
  CHECK(trained(imported) == std::set<std::string>{"w", "r", "b", "d"});
  // r, z, h of z, r, h
  CHECK(elements(imported->graph, "r") == std::vector<float>{1, 0, 2});
  CHECK(elements(imported->graph, "d") == std::vector<float>{4, 3, 5});
  Notes notes = packed_notes(3);
  notes.folded_from.erase("val_2");
  CHECK(trained(import_noted(one_layer("GRU", "gru.input", 3, call), notes)) ==
        std::set<std::string>{"w", "val_2", "b", "d"});
}

TEST_CASE("layers and directions follow one another, and those that began alike have their own") {
  const std::string call =
      text("lstm|", taken_by("lstm.input",
                             "%x, [%zeros, %zeros_1], [%p_w, %p_r, %p_w2, %p_r2, %p_v, %p_q, %p_v2, "
                             "%p_q2], False, 2, 0.0, True, True, False"));
  const auto imported = import_noted(
      exported_model(
          "g (float[5,N,2] x, float[2,4,2] val_1, float[2,4,1] val_2, float[2,4,2] val_3) => (float[5,2,N,1] "
          "y) { a, ha = LSTM<hidden_size = 1, direction = \"bidirectional\">(x, val_1, val_2) t = "
          "Transpose<perm = [0, 2, 1, 3]>(a) s = Constant<value_ints = [5, -1, 2]>() j = Reshape(t, s) y, h = "
          "LSTM<hidden_size = 1, direction = \"bidirectional\">(j, val_3, val_2) }",
          {{"a", call}, {"y", call}}, {"w", "r", "w2", "r2", "v", "q", "v2", "q2"}),
      {{{"val_1", "['w', 'w2']"}, {"val_2", "['r', 'r2']"}, {"val_3", "['v', 'v2']"}},
       {{"val_1", counted(16)}, {"val_2", counted(8)}, {"val_3", counted(16)}},
       {}});
  CHECK(trained(imported) == std::set<std::string>{"w", "r", "w2", "r2", "v", "q", "v2", "q2"});
  CHECK(elements(imported->graph, "w2") == std::vector<float>{8, 9, 12, 13, 14, 15, 10, 11});
  CHECK(elements(imported->graph, "q2") == std::vector<float>{4, 6, 7, 5});
}

TEST_CASE("an LSTM with one first state where its call has two does not train the second") {
  const auto import_states = [](const std::string& states, const std::string& cell) {
    return import_noted(
        exported_model(
            text("g (float[5,N,1] x, float[1,4,1] val_1, float[1,4,1] val_2, float[1,8] val_3, float[1,1,1] "
                 "h, float[1,1,1] c) => (float[5,1,N,1] y) { n = Shape<start = 1, end = 2>(x) one = "
                 "Constant<value_ints = [1]>() s = Concat<axis = 0>(one, n, one) e = Expand(h, s) f = "
                 "Expand(",
                 cell, ", s) y, last = LSTM<hidden_size = 1>(x, val_1, val_2, val_3, \"\", e, ",
                 cell == "h" ? "e" : "f", ") }"),
            {{"y", text("lstm|", taken_by("lstm.input", text("%x, [", states, "], [", kLayerWeights, kLayerBiases,
                                                             "], True, 1, 0.0, True, False, False")))}},
            {"w", "r", "b", "d", "h", "c"}),
        packed_notes(4));
  };
  const auto merged = import_states("%clone, %clone_1", "h");
  REQUIRE_FALSE(merged.ok());
  CHECK(reports(merged.problems(), Code::kLostByExport, "merged the two first states of 'lstm'"));
  CHECK(import_states("%clone, %clone", "h").ok());
  CHECK(trained(import_states("%clone, %clone_1", "c")).contains("c"));
}

TEST_CASE("what the call does not say, or the file contradicts, stays packed") {
  const std::set<std::string> packed = {"val_1", "val_2", "val_3"};
  const std::string weights = "%x, [%zeros, %zeros_1], [" + kLayerWeights + kLayerBiases;
  CHECK(trained(import_lstm(weights + "], True, 2, 0.0, True, False, False")) == packed);
  CHECK(trained(import_lstm("%x, [%zeros, %zeros_1], %list, True, 1, 0.0, True, False, False")) == packed);
  CHECK(trained(import_lstm(kLstmCall, packed_notes(4), "w tie v\n")).contains("val_1"));
  Notes notes = packed_notes(4);
  notes.folded_from["val_1"] = "['val_9']";
  CHECK_FALSE(trained(import_lstm(kLstmCall, notes)).contains("w"));
  // A tensor that another node reads is no operand alone.
  const auto read_twice = import_noted(
      exported_model("g (float[5,N,1] x, float[1,4,1] val_1, float[1,4,1] val_2) => (float[5,1,N,1] z) { y, h = "
                     "LSTM<hidden_size = 1>(x, val_1, val_2) s = ReduceSum(val_1) z = Add(y, s) }",
                     {{"y", taken_by("lstm.input", "%x, [%zeros], [%p_w, %p_r], False, 1, 0.0, True, False, False")}},
                     {"w", "r"}),
      packed_notes(4));
  CHECK_FALSE(trained(read_twice).contains("w"));
  CHECK(trained(read_twice).contains("r"));
}

TEST_CASE("a trained model is written with these parameters under their names") {
  const TemporaryFolder folder;
  folder.write("model.onnx", with_notes(one_layer("LSTM", "lstm.input", 4, kLstmCall), packed_notes(4)));
  const std::string path = folder / "model.onnx";
  std::map<std::string, NewTensor> tensors;
  std::string bytes(4 * sizeof(float), '\0');
  tensors["w"] = {.dtype = ir::DType::kFloat32, .dims = {4, 1}, .bytes = bytes};
  std::set<std::string> replaced;
  const auto written = export_onnx(path, "", ParameterRules(), tensors, replaced);
  REQUIRE(written.ok());
  CHECK(replaced == std::set<std::string>{"w"});
  CHECK(trained(import_bytes(*written)) == std::set<std::string>{"w", "r", "b", "d"});
}
