// Types that no operator computes in, and quantised operators.

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

bool holds(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

std::string lowered(const std::string& body) { return nodes_of(import_text(body)); }

}  // namespace

TEST_CASE("unsigned integers are computed with in int64 and cast back") {
  const std::string sum = lowered("g (uint16[N,3] x, uint16[N,3] y) => (uint16[N,3] z) { z = Add(x, y) }");
  CHECK(holds(sum, "Add"));
  CHECK(holds(sum, "u16"));
  CHECK_FALSE(holds(lowered("g (uint32[N,3] x) => (uint32[N,3] z) { z = Identity(x) }"), "Cast"));
  // Indices and truth values stay what they are.
  CHECK_FALSE(holds(lowered("g (uint32[N,3] x) => (int64[N,1] z) { z = ArgMax<axis = 1>(x) }"), "u32"));
  CHECK_FALSE(holds(lowered("g (uint32[N,3] x) => (bool[N,3] z) { z = Less(x, x) }"), "u32"));
}

TEST_CASE("what is not exact on uint64 is refused with a cure, what is exact is not") {
  for (const char* op : {"Pow(x, x)", "Sign(x)", "ReduceProd<keepdims = 1>(x)"})
    CHECK(reports(import_text(text("g (uint64[N,3] x) => (uint64[N,3] z) { z = ", op, " }")).problems(),
                  Code::kUnsupportedType, "cast its operands to int64"));
  for (const char* op : {"Add(x, x)", "Max(x, x)", "BitwiseNot(x)", "Div(x, x)", "Mod(x, x)",
                         "BitShift<direction = \"LEFT\">(x, x)", "BitShift<direction = \"RIGHT\">(x, x)"})
    CHECK(import_text(text("g (uint64[N,3] x) => (uint64[N,3] z) { z = ", op, " }")).ok());
}

TEST_CASE("results have the type of the input that decides it, widened or not") {
  CHECK_FALSE(holds(lowered("g (int64[N,3] x, uint32[N,3] e) => (int64[N,3] z) { z = Pow(x, e) }"), "u32"));
  CHECK_FALSE(holds(lowered("g (uint32[N,3] x) => (int64[N,3,4] z) <int64 d = {4}, int64[2] v = {-1, 5}> "
                            "{ z = OneHot(x, d, v) }"),
                    "to=\"u32\""));
  CHECK(holds(lowered("g (uint32[N,3] x, int64[N,3] e) => (uint32[N,3] z) { z = Pow(x, e) }"), "to=\"u32\""));
  // What is only moved keeps its infinities.
  CHECK(holds(lowered("g (float8e5m2[N,3] x) => (float8e5m2[N,6] z) <int64[2] r = {1, 2}> "
                      "{ z = Tile(x, r) }"),
              "saturate=0"));
}

TEST_CASE("attributes of quantisation that do not fit are refused") {
  for (const char* attribute : {"output_dtype = 8", "output_dtype = 99999999999", "precision = 8", "block_size = -3"})
    CHECK_FALSE(import_text(text("g (float[N,4] x) => (uint8[N,4] y) <float s = {0.5}> { y = QuantizeLinear<",
                                 attribute, ">(x, s) }"))
                    .ok());
}

TEST_CASE("strings are refused with a cure") {
  CHECK(reports(import_text("<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"pytorch\">\n"
                            "g (float[N] x) => (float[N] z) { y = Cast<to = 15>(x) z = Cast<to = 1>(y) }")
                    .problems(),
                Code::kUnsupportedType, "writes this for .bfloat16()"));
  CHECK(reports(import_text("g (string[N] x) => (string[N] y) { y = Identity(x) }").problems(), Code::kUnsupportedType,
                "encode strings as indices"));
}

namespace {

/// A product with an int4 weight of 101 x 201 elements, whose data have so many bytes.
Result<Imported> with_packed_weight(size_t bytes) {
  graphpipe_onnx::ModelProto model = parse_onnx_text(
      "g (float[N,101] x, int4[101,201] w) => (float[N,201] y) <float s = {0.5}> "
      "{ d = DequantizeLinear(w, s)\n y = MatMul(x, d) }");
  model.mutable_graph()->mutable_input()->RemoveLast();
  graphpipe_onnx::TensorProto& weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(graphpipe_onnx::TensorProto::INT4);
  weight.add_dims(101);
  weight.add_dims(201);
  weight.set_raw_data(std::string(bytes, '\x21'));
  return import_bytes(model.SerializeAsString());
}

}  // namespace

TEST_CASE("large weights of less than a byte stay packed in their file") {
  constexpr size_t kPacked = (101 * 201 + 1) / 2;
  const Result<Imported> imported = with_packed_weight(kPacked);
  REQUIRE(imported.ok());
  CHECK(ir::verify_graph(imported->graph).ok());
  size_t packed = 0;
  for (const ir::ParamId id : imported->graph.param_ids()) {
    const auto* range = std::get_if<ir::FileRange>(&imported->graph.param(id).data);
    if (range != nullptr && range->length == static_cast<int64_t>(kPacked)) ++packed;
  }
  CHECK(packed == 1);
  CHECK(reports(with_packed_weight(kPacked - 1).problems(), Code::kBadModel, "20301 elements"));
  CHECK(reports(with_packed_weight(kPacked + 1).problems(), Code::kBadModel, "20301 elements"));
}

TEST_CASE("small floats are cast when something is computed with them") {
  const std::string body = "g (float8e4m3fn[N,3] x) => (float8e4m3fn[N,3] z) { z = Add(x, x) }";
  CHECK(holds(lowered(body), "f8e4m3fn"));
}

TEST_CASE("a quantised model with scales for each channel is read, one whose scales do not fit is refused") {
  const auto body = [](const std::string& channels) {
    return text("g (float[N,3] x) => (float[N,3] y) <float[", channels, "] s = {",
                channels == "3" ? "0.5, 0.25, 2.0" : "0.5, 0.25", "}, int8 z = {0}> {",
                " q = QuantizeLinear<axis = 1>(x, s)\n d = DequantizeLinear<axis = 1>(q, s)\n y = Relu(d) }");
  };
  const std::string nodes = lowered(body("3"));
  for (const char* op : {"Div", "Round", "Clip", "Cast", "Mul"}) CHECK(holds(nodes, op));
  CHECK(reports(import_text(body("2")).problems(), Code::kBadModel, "axis 1"));
}

TEST_CASE("constants of any type are repeated, and what is wrong with one is said") {
  const auto body = [](const std::string& type, const std::string& value) {
    return text("g (", type, "[N,4] x) => (", type,
                "[3,4] y) <int64[2] s = {3, 4}> { y = ConstantOfShape<value = ", type, value, ">(s) }");
  };
  for (const char* type : {"uint16", "uint32", "uint64", "float8e4m3fn"})
    CHECK(holds(lowered(body(type, "[1] {7}")), "Expand"));
  CHECK(reports(import_text(body("uint32", "[2] {7, 8}")).problems(), Code::kBadModel, "not one element"));
}

TEST_CASE("products of small floats are quantised without a zero point") {
  const std::string nodes = lowered(
      "g (float8e4m3fn[N,4] a) => (float8e4m3fn[N,4] y) <float s = {0.5}, float8e4m3fn z = {0}, "
      "float8e4m3fn[4,4] b = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}> "
      "{ y = QLinearMatMul(a, s, z, b, s, z, s, z) }");
  CHECK(holds(nodes, "MatMul"));
  CHECK(holds(nodes, "to=\"f8e4m3fn\""));
}
