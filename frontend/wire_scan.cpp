#include "frontend/wire_scan.h"

#include <array>

#include "frontend/exported_call.h"
#include "frontend/folding_note.h"
#include "frontend/wire_reader.h"

namespace graphpipe::frontend {
namespace {

// The messages of onnx.proto that are traversed; kLeaf denotes fields that are copied unread.
enum class Message : uint8_t {
  kLeaf,
  kDropped,
  kModel,
  kGraph,
  kNode,
  kAttribute,
  kTensor,
  kSparseTensor,
  kFunction,
  kTraining,
  kValueInfo,
  kType,
  kTypeTensor,
  kTypeElement,
  kTypeMap,
  kShape,
  kDimension,
  kEntry,
};

struct Child {
  Message parent;
  uint32_t field;
  Message child;
};

/// Field numbers of onnx.proto (IR version 13) that hold messages, per message.
constexpr std::array<Child, 53> kChildren = {{
    {Message::kModel, 6, Message::kDropped},
    {Message::kModel, 7, Message::kGraph},
    {Message::kModel, 8, Message::kEntry},
    {Message::kModel, 14, Message::kEntry},
    {Message::kModel, 20, Message::kTraining},
    {Message::kModel, 25, Message::kFunction},
    {Message::kModel, 26, Message::kDropped},
    {Message::kTraining, 1, Message::kGraph},
    {Message::kTraining, 2, Message::kGraph},
    {Message::kTraining, 3, Message::kEntry},
    {Message::kTraining, 4, Message::kEntry},
    {Message::kGraph, 1, Message::kNode},
    {Message::kGraph, 5, Message::kTensor},
    {Message::kGraph, 10, Message::kDropped},
    {Message::kGraph, 11, Message::kValueInfo},
    {Message::kGraph, 12, Message::kValueInfo},
    {Message::kGraph, 13, Message::kValueInfo},
    {Message::kGraph, 14, Message::kDropped},
    {Message::kGraph, 15, Message::kSparseTensor},
    {Message::kGraph, 16, Message::kEntry},
    {Message::kNode, 5, Message::kAttribute},
    {Message::kNode, 6, Message::kDropped},
    {Message::kNode, 9, Message::kDropped},
    {Message::kNode, 10, Message::kDropped},
    {Message::kAttribute, 5, Message::kTensor},
    {Message::kAttribute, 6, Message::kGraph},
    {Message::kAttribute, 10, Message::kTensor},
    {Message::kAttribute, 11, Message::kGraph},
    {Message::kAttribute, 13, Message::kDropped},
    {Message::kAttribute, 14, Message::kType},
    {Message::kAttribute, 15, Message::kType},
    {Message::kAttribute, 22, Message::kSparseTensor},
    {Message::kAttribute, 23, Message::kSparseTensor},
    {Message::kSparseTensor, 1, Message::kTensor},
    {Message::kSparseTensor, 2, Message::kTensor},
    {Message::kFunction, 7, Message::kNode},
    {Message::kFunction, 8, Message::kDropped},
    {Message::kFunction, 9, Message::kEntry},
    {Message::kFunction, 11, Message::kAttribute},
    {Message::kFunction, 12, Message::kValueInfo},
    {Message::kFunction, 14, Message::kDropped},
    {Message::kValueInfo, 2, Message::kType},
    {Message::kValueInfo, 3, Message::kDropped},
    {Message::kValueInfo, 4, Message::kDropped},
    {Message::kType, 1, Message::kTypeTensor},
    {Message::kType, 4, Message::kTypeElement},
    {Message::kType, 5, Message::kTypeMap},
    {Message::kType, 8, Message::kTypeTensor},
    {Message::kType, 9, Message::kTypeElement},
    {Message::kTypeTensor, 2, Message::kShape},
    {Message::kTypeElement, 1, Message::kType},
    {Message::kTypeMap, 2, Message::kType},
    {Message::kShape, 1, Message::kDimension},
}};

Message child_of(Message parent, uint32_t field) {
  for (const Child& row : kChildren)
    if (row.parent == parent && row.field == field) return row.child;
  return Message::kLeaf;
}

// Fields of TensorProto.
constexpr uint32_t kDims = 1, kDataType = 2, kFloatData = 4, kRawData = 9, kDoubleData = 10, kTensorDoc = 12,
                   kExternalData = 13, kDataLocation = 14, kTensorMetadata = 16;

bool is_float_type(uint64_t onnx_type) {
  return onnx_type == 1 || onnx_type == 10 || onnx_type == 11 || onnx_type == 16;
}

class Scanner {
 public:
  Scanner(std::string_view file, const Limits& limits) : file_(file), limits_(limits) {}

  Result<WireScan> run() {
    GP_TRY(scan_.stripped, message(Message::kModel, file_, 0));
    return std::move(scan_);
  }

 private:
  Result<std::string> message(Message kind, std::string_view bytes, int depth);
  Result<std::string> tensor(std::string_view bytes);
  Status count(int64_t& counter, int64_t limit, const char* what);
  Status keep(const std::string& out);
  void note_external(std::string_view entry, ExternalSlot& slot);
  Diagnostic malformed(std::string_view at) const;
  void append_slot(std::string& out, Slot slot);

  std::string_view file_;
  const Limits& limits_;
  WireScan scan_;
};

Diagnostic Scanner::malformed(std::string_view at) const {
  return Diagnostic{.code = Code::kMalformedFile,
                    .severity = Severity::kError,
                    .origin = {},
                    .message = text("not a valid ONNX file: a field in the message at byte ", at.data() - file_.data(),
                                    " is cut off or has an unknown encoding"),
                    .hint = "export the model again, or fetch the file again"};
}

Status Scanner::count(int64_t& counter, int64_t limit, const char* what) {
  if (++counter <= limit) return Ok{};
  return Diagnostic{.code = Code::kLimitExceeded,
                    .severity = Severity::kError,
                    .origin = {},
                    .message = text("the model has more than ", limit, " ", what),
                    .hint = "split the model, or raise the limit if you trust the file"};
}

Status Scanner::keep(const std::string& out) {
  if (static_cast<int64_t>(out.size()) <= limits_.structure_bytes) return Ok{};
  return Diagnostic{
      .code = Code::kLimitExceeded,
      .severity = Severity::kError,
      .origin = {},
      .message = text("without its weights the model still has more than ", limits_.structure_bytes, " bytes"),
      .hint = "store large constants as initializers, or raise the limit if you trust the file"};
}

/// What is kept of an entry of metadata, encoded as the entry is: the whole, a part of its text, or nothing.
std::string kept_metadata(Message kind, std::string_view entry) {
  if (kind == Message::kNode ? may_be_exported_call(entry) : may_be_folding_note(entry)) return std::string(entry);
  std::string_view key, value;
  WireReader reader(entry);
  while (std::optional<WireField> field = reader.next()) {
    if (field->number == 1) key = field->content;
    if (field->number == 2) value = field->content;
  }
  const std::string place = kind == Message::kNode ? place_of_call(key, value) : std::string();
  std::string kept;
  if (place.empty()) return kept;
  append_field(kept, 1, key);
  append_field(kept, 2, place);
  return kept;
}

bool has_metadata(Message kind, const WireField& field) {
  constexpr uint32_t kOfNode = 9, kOfValue = 4;
  return field.type == WireType::kLengthDelimited && ((kind == Message::kNode && field.number == kOfNode) ||
                                                      (kind == Message::kValueInfo && field.number == kOfValue));
}

Result<std::string> Scanner::message(Message kind, std::string_view bytes, int depth) {
  if (kind == Message::kTensor) return tensor(bytes);
  if (depth > limits_.depth)
    return Diagnostic{.code = Code::kLimitExceeded,
                      .severity = Severity::kError,
                      .origin = {},
                      .message = text("messages are nested deeper than ", limits_.depth, " levels"),
                      .hint = "flatten nested If and Loop bodies"};
  std::string out;
  WireReader reader(bytes);
  while (std::optional<WireField> field = reader.next()) {
    const Message child = child_of(kind, field->number);
    const std::string metadata = has_metadata(kind, *field) ? kept_metadata(kind, field->content) : std::string();
    if (child == Message::kDropped && metadata.empty()) continue;
    if (field->type == WireType::kLengthDelimited) GP_TRY_VOID(count(scan_.items, limits_.items, "parts"));
    if (!metadata.empty()) {
      append_field(out, field->number, metadata);
    } else if (child == Message::kLeaf || child == Message::kEntry || field->type != WireType::kLengthDelimited) {
      out.append(field->whole);
    } else {
      if (child == Message::kNode) GP_TRY_VOID(count(scan_.nodes, limits_.nodes, "nodes"));
      if (child == Message::kTensor) GP_TRY_VOID(count(scan_.tensors, limits_.tensors, "tensors"));
      GP_TRY(const std::string content, message(child, field->content, depth + 1));
      append_field(out, field->number, content);
    }
    GP_TRY_VOID(keep(out));
  }
  if (reader.malformed()) return malformed(bytes);
  return out;
}

void Scanner::note_external(std::string_view entry, ExternalSlot& slot) {
  WireReader reader(entry);
  std::string key, value;
  while (std::optional<WireField> field = reader.next()) {
    if (field->number == 1) key = field->content;
    if (field->number == 2) value = field->content;
  }
  if (key == "location") slot.location = value;
  if (key == "offset") slot.offset = value, slot.has_offset = true;
  if (key == "length") slot.length = value, slot.has_length = true;
}

void Scanner::append_slot(std::string& out, Slot slot) {
  std::string entry;
  append_field(entry, 1, "location");
  append_field(entry, 2, text("slot ", scan_.slots.size()));
  append_field(out, kExternalData, entry);
  append_varint_field(out, kDataLocation, 1);
  scan_.slots.push_back(std::move(slot));
}

Result<std::string> Scanner::tensor(std::string_view bytes) {
  std::string out;
  std::vector<WireField> data;  // fields with elements as dense bytes
  ExternalSlot external;
  bool is_external = false;
  uint64_t type = 0;
  int64_t fields = 0;
  WireReader reader(bytes);
  while (std::optional<WireField> field = reader.next()) {
    GP_TRY_VOID(count(scan_.items, limits_.items, "parts"));
    const bool packed = field->type == WireType::kLengthDelimited;
    if (field->number == kDataType) type = field->scalar;
    if (field->number == kExternalData) {
      if (packed) note_external(field->content, external);
      if (++fields > 64) return malformed(bytes);
    } else if (field->number == kDataLocation) {
      is_external = field->scalar == 1;
    } else if (packed && (field->number == kRawData || field->number == kFloatData || field->number == kDoubleData)) {
      data.push_back(*field);
    } else if (field->number != kTensorDoc && field->number != kTensorMetadata) {
      out.append(field->whole);
      GP_TRY_VOID(keep(out));
    }
  }
  if (reader.malformed()) return malformed(bytes);
  const int64_t kept = is_float_type(type) ? kKeptFloatBytes : kKeptIntegerBytes;
  // Packed float and double fields have the same bytes as raw data.
  if (is_external) {
    append_slot(out, std::move(external));
  } else if (data.size() == 1 && static_cast<int64_t>(data[0].content.size()) > kept) {
    append_slot(out, InlineSlot{.offset = data[0].content.data() - file_.data(),
                                .length = static_cast<int64_t>(data[0].content.size())});
  } else {
    for (const WireField& field : data) out.append(field.whole);
    GP_TRY_VOID(keep(out));
  }
  return out;
}

}  // namespace

Result<WireScan> scan_wire(std::string_view file, const Limits& limits) { return Scanner(file, limits).run(); }

}  // namespace graphpipe::frontend
