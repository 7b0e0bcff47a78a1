// The scan takes weights out and leaves everything else as it was.

#include "frontend/wire_scan.h"

#include "frontend/wire_reader.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace pb = graphpipe_onnx;

namespace {

pb::ModelProto model_with_weight(size_t elements, bool raw) {
  pb::ModelProto model = parse_onnx_text("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }");
  pb::TensorProto& weight = *model.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(pb::TensorProto::FLOAT);
  weight.add_dims(static_cast<int64_t>(elements));
  if (raw) weight.set_raw_data(std::string(4 * elements, 'r'));
  else
    for (size_t i = 0; i < elements; ++i) weight.add_float_data(1.0F);
  return model;
}

}  // namespace

TEST_CASE("large data are replaced by their place in the file, raw or packed") {
  for (bool raw : {true, false}) {
    CAPTURE(raw);
    const std::string bytes = model_with_weight(1000, raw).SerializeAsString();
    const Result<WireScan> scan = scan_wire(bytes, {});
    REQUIRE(scan.ok());
    REQUIRE(scan->slots.size() == 1);
    const auto& slot = std::get<InlineSlot>(scan->slots[0]);
    CHECK(slot.length == 4000);
    const std::string one("\x00\x00\x80\x3f", 4);
    CHECK(bytes.substr(static_cast<size_t>(slot.offset), 4) == (raw ? "rrrr" : one));
    CHECK(scan->stripped.size() < bytes.size() - 3900);
    pb::ModelProto stripped;
    REQUIRE(stripped.ParseFromString(scan->stripped));
    CHECK(stripped.graph().initializer(0).data_location() == pb::TensorProto::EXTERNAL);
    CHECK(stripped.graph().initializer(0).external_data(0).value() == "slot 0");
  }
}

TEST_CASE("small data stay, and a model without large data and comments is unchanged") {
  const std::string bytes = model_with_weight(4, true).SerializeAsString();
  const Result<WireScan> scan = scan_wire(bytes, {});
  REQUIRE(scan.ok());
  CHECK(scan->slots.empty());
  pb::ModelProto before, after;
  REQUIRE(before.ParseFromString(bytes));
  REQUIRE(after.ParseFromString(scan->stripped));
  CHECK(before.SerializeAsString() == after.SerializeAsString());
}

TEST_CASE("comments and per-node metadata are left out, the graph's metadata stay") {
  pb::ModelProto model = model_with_weight(4, true);
  model.set_doc_string("a comment");
  model.mutable_graph()->mutable_node(0)->set_doc_string(std::string(5000, 'c'));
  auto& on_node = *model.mutable_graph()->mutable_node(0)->add_metadata_props();
  on_node.set_key("stack_trace");
  on_node.set_value(std::string(5000, 'm'));
  auto& on_graph = *model.mutable_graph()->add_metadata_props();
  on_graph.set_key("signature");
  on_graph.set_value("kept");
  const Result<WireScan> scan = scan_wire(model.SerializeAsString(), {});
  REQUIRE(scan.ok());
  CHECK(scan->stripped.size() < 1000);
  pb::ModelProto stripped;
  REQUIRE(stripped.ParseFromString(scan->stripped));
  CHECK(stripped.graph().metadata_props(0).value() == "kept");
}

TEST_CASE("the reader gives back what was written and stops at the first malformed byte") {
  std::string bytes;
  append_varint_field(bytes, 1, 300);
  append_varint_field(bytes, 2, UINT64_MAX);
  append_field(bytes, 15, "text");
  WireReader reader(bytes);
  CHECK(reader.next()->scalar == 300);
  CHECK(reader.next()->scalar == UINT64_MAX);
  CHECK(reader.next()->content == "text");
  CHECK_FALSE(reader.next().has_value());
  CHECK_FALSE(reader.malformed());
  for (const std::string& bad :
       {std::string("\x0a\x05"
                    "abc"),
        std::string("\x08"), std::string("\x0b"), std::string("\x00\x01", 2), std::string(11, '\xff'),
        std::string("\x0d"
                    "ab")}) {
    WireReader broken(bad);
    CHECK_FALSE(broken.next().has_value());
    CHECK(broken.malformed());
  }
}
