#include <doctest/doctest.h>

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

bool has(const std::string& nodes, const std::string& line) { return nodes.find(line) != std::string::npos; }

/// As PyTorch's exporter writes it, which names what it has computed beforehand val_1, ..
Result<frontend::Imported> import_exported(const std::string& body) {
  ONNX_NAMESPACE::ModelProto model = parse_onnx_text(body);
  model.set_producer_name("pytorch");
  return import_bytes(model.SerializeAsString());
}

}  // namespace

TEST_CASE("in a file with a fixed batch, a mask with equal parts for all samples is one for each") {
  const auto masked = [](const std::string& mask) {
    return import_exported("g (float[3,2,2] x) => (float[3,2,2] y) <float[3,1,2] val_1 = {" + mask + R"(}> {
      y = Add(x, val_1)
    })");
  };
  const auto imported = masked("1, 2, 1, 2, 1, 2");
  REQUIRE(imported.ok());
  CHECK(reports(imported->notes, Code::kBatchNotFound, "'val_1'"));
  CHECK_FALSE(masked("1, 2, 1, 2, 1, 3").ok());
  CHECK_FALSE(masked("1, 2, 1, 2, 3, 2").ok());
  // Of truth values too, which are known without a parameter.
  const auto chosen = [](const std::string& mask) {
    return import_text("g (float[3,2] x) => (float[3,2] y) <bool[3,2] mask = {" + mask + R"(}, float zero = {0}> {
      y = Where(mask, x, zero)
    })");
  };
  CHECK(chosen("0, 1, 0, 1, 0, 1").ok());
  CHECK_FALSE(chosen("0, 1, 0, 1, 1, 1").ok());
}

TEST_CASE("tokens that are repeated for the samples of the export follow the batch") {
  // Computed beforehand.
  const auto folded = [](const std::string& token) {
    return import_exported("g (float[3,2,2] x) => (float[3,3,2] y) <float[3,1,2] val_1 = {" + token + R"(}> {
      y = Concat<axis = 1>(val_1, x)
    })");
  };
  CHECK(has(nodes_of(folded("1, 2, 1, 2, 1, 2")), "{shape=dims[B,1,2]}"));
  CHECK_FALSE(folded("1, 2, 1, 2, 1, 3").ok());
  // By a node, as of a parameter.
  const auto expanded = import_text(R"(g (float[4,3,5] x) => (float[4,4,5] y)
    <float[1,1,5] token = {1, 2, 3, 4, 5}, int64[3] target = {4, 1, 5}> {
    tokens = Expand(token, target)
    y = Concat<axis = 1>(tokens, x)
  })");
  CHECK(has(nodes_of(expanded), "f32[B,4,5]"));
}

TEST_CASE("rows that are looked up by numbers which are repeated for the samples follow the batch") {
  const auto looked_up = [](const std::string& numbers) {
    return import_text(
        "g (float[4,3,2] x) => (float[4,3,2] y) <float[5,2] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "
        "int64[1,3] kinds = {0, 1, 1}, int64[4,1] samples = {0, 1, 2, 3}, int64[2] target = {4, 3}> { " +
        numbers + " rows = Gather(table, all) y = Add(x, rows) }");
  };
  CHECK(has(nodes_of(looked_up("all = Expand(kinds, target)")), "f32[B,3,2]"));
  CHECK_FALSE(looked_up("all = Expand(samples, target)").ok());
}

TEST_CASE("a token that is joined with the one sample of an export is joined with each of the batch") {
  const auto one = import_text(R"(g (float[1,3,5] x) => (float[1,5,5] y) <float[1,1,5] token = {1, 2, 3, 4, 5}> {
    y = Concat<axis = 1>(token, x, token)
  })");
  CHECK(has(nodes_of(one), "{shape=dims[B,1,5]}"));
  CHECK(has(nodes_of(one), "f32[B,5,5]"));
  CHECK(reports(one->notes, Code::kBatchNotFound, "'token' is joined with the one sample"));
  // Not with the samples themselves, and not where a named batch says that there is one sample of it alone.
  CHECK_FALSE(import_text(R"(g (float[1,3] x) => (float[2,3] y) <float[1,3] token = {1, 2, 3}> {
    y = Concat<axis = 0>(token, x)
  })")
                  .ok());
  CHECK_FALSE(import_text(R"(g (float[N,3,5] x) => (float[N,4,5] y) <float[1,1,5] token = {1, 2, 3, 4, 5}> {
    y = Concat<axis = 1>(token, x)
  })")
                  .ok());
}

TEST_CASE("tuples of indices whose first is the number of the sample look up its own row") {
  const auto looked_up = [](const std::string& tuples) {
    return import_exported("g (float[3,2] x) => (float[3,2] y) <int64[3,2,2] val_1 = {" + tuples + R"(}> {
      turned = GatherND(x, val_1)
      y = Add(x, turned)
    })");
  };
  const auto imported = looked_up("0, 1, 0, 0, 1, 1, 1, 0, 2, 1, 2, 0");
  REQUIRE(imported.ok());
  CHECK(has(nodes_of(imported), "batch_dims=1"));
  CHECK(reports(imported->notes, Code::kBatchNotFound, "'val_1' numbers the 3 samples"));
  CHECK_FALSE(looked_up("0, 1, 0, 0, 1, 1, 1, 0, 2, 1, 2, 1").ok());  // other rows
  CHECK_FALSE(looked_up("0, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0").ok());  // of another sample
}

TEST_CASE("constants are repeated where the batch is another axis, and joined along it as they are") {
  CHECK(import_exported(R"(g (float[3,2] x) => (float[3,4] y)
    <float[1,3,2] val_1 = {1, 2, 1, 2, 1, 2}, int64[1] zero = {0}> {
    rows = Unsqueeze(x, zero)
    wide = Add(rows, val_1)
    flat = Squeeze(wide, zero)
    y = Concat<axis = 1>(flat, flat)
  })")
            .ok());
  CHECK_FALSE(import_exported(R"(g (float[3,2] x) => (float[6,2] y) <float[3,2] val_1 = {1, 2, 1, 2, 1, 2}> {
    y = Concat<axis = 0>(x, val_1)
  })")
                  .ok());
}

TEST_CASE("rows that each sample has several of repeat for all, where they lie together") {
  const auto added = [](const std::string& shape, const std::string& target, const std::string& rows) {
    return import_exported("g (float[3,2,2] x) => (float" + shape + R"( y) <float[6,1] val_1 = {)" + rows +
                           "}, int64[3] back = {3, 2, 2}, int64[2] target = " + target + R"(> {
      t = Transpose<perm = [1, 0, 2]>(x)
      flat = Reshape(x, target)
      sum = Add(flat, val_1)
      y = Reshape(sum, back)
    })");
  };
  const auto imported = added("[3,2,2]", "{6, 2}", "1, 2, 1, 2, 1, 2");
  CHECK(has(nodes_of(imported), "{shape=dims[B,2,1]}"));
  CHECK_FALSE(added("[3,2,2]", "{6, 2}", "1, 2, 1, 2, 1, 3").ok());
  // Samples that lie side by side have other rows.
  CHECK_FALSE(import_exported(R"(g (float[3,2,2] x) => (float[3,2,2] y)
    <float[6,1] val_1 = {1, 2, 1, 2, 1, 2}, int64[3] back = {2, 3, 2}, int64[2] target = {6, 2}> {
      t = Transpose<perm = [1, 0, 2]>(x)
      flat = Reshape(t, target)
      sum = Add(flat, val_1)
      z = Reshape(sum, back)
      y = Transpose<perm = [1, 0, 2]>(z)
    })")
                  .ok());
}

TEST_CASE("places that are picked of each sample by the same numbers are those of all") {
  const auto follows = [](const std::string& numbers, const std::string& axis) {
    const auto imported = import_text("g (float[3,2] x) => (float[3,1] y) <int64[3,1] places = {" + numbers + R"(}> {
      y = GatherElements<axis = )" + axis +
                                      ">(x, places) }");
    return imported.ok() && has(nodes_of(imported), "f32[B,1]");
  };
  CHECK(follows("1, 1, 1", "1"));
  CHECK_FALSE(follows("1, 0, 1", "1"));
  for (const char* samples : {"0", "-2"}) CHECK_FALSE(follows("1, 1, 1", samples));
  // As the gates of experts are written into zeros.
  const auto written = [](const std::string& zeros, const std::string& axis) {
    return import_exported("g (float[3,2] x, int64[3,2] at) => (float[3,4] y) <float[3,4] val_1 = {" + zeros + R"(}> {
      y = ScatterElements<axis = )" +
                           axis + ">(val_1, at, x) }");
  };
  CHECK(has(nodes_of(written("0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0", "1")), "f32[B,4]"));
  CHECK_FALSE(written("0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1", "1").ok());
  CHECK_FALSE(has(nodes_of(written("0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0", "0")), "f32[B,4]"));
}

TEST_CASE("the first state of a recurrent layer is that of all samples where its rows are equal") {
  const auto layer = [](const std::string& state) {
    return import_exported(R"(g (float[5,3,1] x) => (float[5,1,3,2] y)
      <float[1,2,1] w = {1, 2}, float[1,2,2] r = {1, 2, 3, 4}, float[1,3,2] val_1 = {)" +
                           state + R"(}> {
      y = RNN<hidden_size = 2>(x, w, r, "", "", val_1)
    })");
  };
  CHECK_FALSE(has(nodes_of(layer("0, 0, 0, 0, 0, 0")), "Expand("));
  CHECK(has(nodes_of(layer("1, 2, 1, 2, 1, 2")), "{shape=dims[1,B,2]}"));
  CHECK_FALSE(layer("1, 2, 1, 2, 1, 3").ok());
  CHECK_FALSE(import_exported(R"(g (float[5,3,1] x) => (float[5,1,3,2] y)
    <float[1,2,1] w = {1, 2}, float[1,2,2] r = {1, 2, 3, 4}, float[0,3,2] val_1 = {}> {
      y = RNN<hidden_size = 2>(x, w, r, "", "", val_1)
    })")
                  .ok());
}

TEST_CASE("the numbers of the samples of the export number those of any batch") {
  const auto picked = [](const std::string& rows) {
    return import_text("g (float[3,4,2] x, int64[3,1] at) => (float[3,2] y) <int64[3,1] rows = {" + rows + R"(}> {
      places = Concat<axis = 1>(rows, at)
      y = GatherND(x, places)
    })");
  };
  CHECK(has(nodes_of(picked("0, 1, 2")), "Iota() {shape=dims[B]"));
  CHECK(has(nodes_of(import_text(R"(g (float[3] x) => (float[3] y) <int64[3] rows = {0, 1, 2}> {
    s = Shape(x)
    numbers = Expand(rows, s)
    wide = Cast<to = 1>(numbers)
    y = Add(x, wide)
  })")),
            "Iota() {shape=dims[B]"));
  CHECK_FALSE(picked("0, 2, 1").ok());
}

TEST_CASE("a weight of the module keeps its shape, whatever it holds") {
  const std::string body = R"(g (float[3,2] x) => (float[3,2] y) <float[3,2] weight = {0, 0, 0, 0, 0, 0}> {
    y = Add(x, weight)
  })";
  CHECK_FALSE(import_exported(body).ok());
  // Of another exporter's file any float tensor may be one.
  CHECK_FALSE(import_text(R"(g (float[3,2] x) => (float[3,2] y) <float[3,2] val_1 = {0, 0, 0, 0, 0, 0}> {
    y = Add(x, val_1)
  })")
                  .ok());
}

TEST_CASE("constants that stay in the file are compared there") {
  const auto imported = [](float last) {
    ONNX_NAMESPACE::ModelProto model =
        parse_onnx_text("g (float[3,2000] x) => (float[3,2000] y) <float[3,2000] val_1 = {0}> { y = Mul(x, val_1) }");
    ONNX_NAMESPACE::TensorProto& mask = *model.mutable_graph()->mutable_initializer(0);
    std::vector<float> numbers(6000);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 2000);
    numbers.back() = last;
    mask.clear_float_data();
    mask.set_raw_data(std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)));
    model.set_producer_name("pytorch");
    return import_bytes(model.SerializeAsString());
  };
  CHECK(imported(1999).ok());
  CHECK_FALSE(imported(7).ok());
}

TEST_CASE("a layer of a first state that nodes make for each sample of the export follows the batch") {
  for (const char* layer : {"h = Gemm<transB = 1>(s, w, b) ", "m = MatMul(s, w) h = Add(m, b) ",
                            "m = MatMul(s, w) h = Split<axis = 1, num_outputs = 1>(m) "}) {
    const auto imported = import_exported(
        std::string("g (float[3,2] x) => (float[3,2] y) <float[2,2] w = {1, 2, 3, 4}, float[2] b = {5, 6}, int64[2] "
                    "dims = {3, 2}> { s = ConstantOfShape(dims) ") +
        layer + "y = Add(x, h) }");
    REQUIRE(imported.ok());
    CHECK(nodes_of(imported).find("f32[B,2]") != std::string::npos);
  }
}
