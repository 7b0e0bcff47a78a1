#include "files/proto_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <charconv>
#include <cmath>
#include <limits>

#if GOOGLE_PROTOBUF_VERSION < 3022000
#include <google/protobuf/stubs/logging.h>
#else
#include <absl/log/globals.h>
#endif

namespace graphpipe::files {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using PrintOptions = google::protobuf::util::JsonPrintOptions;

// What Debian's protobuf, 3.21, and later releases, which the packages are made with, name differently.
#if GOOGLE_PROTOBUF_VERSION < 3022000
using TextView = google::protobuf::StringPiece;
using LogSilencer = google::protobuf::LogSilencer;
constexpr auto kPrintsZeros = &PrintOptions::always_print_primitive_fields;
#else
using TextView = std::string_view;
struct LogSilencer {
  absl::ScopedStderrThreshold threshold{absl::LogSeverityAtLeast::kInfinity};
};
constexpr auto kPrintsZeros = &PrintOptions::always_print_fields_with_no_presence;
#endif

std::string check_integer(const JsonEvent& event, double low, double high) {
  if (event.kind != JsonKind::kInteger && event.kind != JsonKind::kReal) return "must be an integer";
  if (event.number != std::floor(event.number)) return "must be an integer";
  if (event.number < low || event.number > high) return text("must be an integer from ", low, " to ", high);
  return {};
}

// The JSON mapping writes 64-bit integers as strings and reads both.
std::string check_wide_integer(const JsonEvent& event, double low, double high) {
  if (event.kind != JsonKind::kString) return check_integer(event, low, high);
  const bool digits = !event.string.empty() &&
                      event.string.find_first_not_of("0123456789", event.string[0] == '-') == std::string_view::npos;
  return digits && event.string != "-" ? std::string() : "must be an integer";
}

std::string check_scalar(const FieldDescriptor& field, const JsonEvent& event) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return check_integer(event, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    case FieldDescriptor::CPPTYPE_INT64:
      return check_wide_integer(event, -0x1p63, 0x1p63);
    case FieldDescriptor::CPPTYPE_UINT64:
      return check_wide_integer(event, 0, 0x1p64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return event.kind == JsonKind::kInteger || event.kind == JsonKind::kReal ? "" : "must be a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return event.kind == JsonKind::kBool ? "" : "must be true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return event.kind == JsonKind::kString ? "" : "must be a string";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return event.kind == JsonKind::kObject ? "" : "must be an object";
    default:
      return "has a type that this reader does not know";
  }
}

// Follows a path down the schema and checks the value there.
std::string check_against(const Descriptor& root, const JsonEvent& event) {
  const Descriptor* message = &root;
  const FieldDescriptor* field = nullptr;
  bool in_list = false;
  for (const std::string& part : event.path) {
    if (field != nullptr && field->is_repeated() && !in_list) {
      in_list = true;  // this part is a position
      continue;
    }
    if (field != nullptr) message = field->message_type();
    // A value below one that was refused already.
    if (message == nullptr) return {};
    field = message->FindFieldByName(part);
    in_list = false;
    if (field == nullptr) {
      if (&part != &event.path.back()) return {};
      const FieldDescriptor* meant = message->FindFieldByCamelcaseName(part);
      return meant != nullptr ? text("unknown field; did you mean '", meant->name(), "'?") : "unknown field";
    }
  }
  if (field == nullptr) return event.kind == JsonKind::kObject ? "" : "must be an object";
  if (field->is_repeated() && !in_list) return event.kind == JsonKind::kArray ? "" : "must be a list";
  return check_scalar(*field, event);
}

// What is wrong with the value of "schema"; empty where it names this kind of file in a version that we read.
std::string schema_problem(std::string_view value, std::string_view name, int version) {
  const std::string_view digits =
      value.starts_with(text(name, "/")) ? value.substr(name.size() + 1) : std::string_view();
  int found = 0;
  if (!read_number(digits, found) || found < 1)
    return text("must be ", name, "/", version, ", is ", quoted(ModelText(std::string(value.substr(0, 80)))));
  if (found <= version) return {};
  return text("was written by a newer version: ", name, "/", found, ", and this one reads up to ", version);
}

// Checks "schema" as the first field; everything else is of interest only once it is known.
class SchemaCheck {
 public:
  SchemaCheck(std::string_view name, int version) : name_(name), version_(version) {}

  // Returns whether the event is the one that decides, or comes before it.
  bool sees(const JsonEvent& event) {
    if (decided_ || event.path.empty()) return event.path.empty() && !decided_;
    decided_ = true;
    if (event.path != std::vector<std::string>{"schema"} || event.kind != JsonKind::kString) {
      problem_ = text("the first field must be \"schema\": \"", name_, "/", version_, "\"");
      return true;
    }
    problem_ = schema_problem(event.string, name_, version_);
    return true;
  }

  const std::string& problem() const { return problem_; }
  bool decided() const { return decided_; }

 private:
  std::string_view name_;
  int version_;
  bool decided_ = false;
  std::string problem_;
};

Diagnostic malformed(std::string message, std::string hint) {
  return {.code = Code::kMalformedFile, .origin = ModelText(), .message = std::move(message), .hint = std::move(hint)};
}

}  // namespace

Status parse_message(std::string_view text_form, std::string_view name, int version, const JsonLimits& limits,
                     google::protobuf::Message& message) {
  SchemaCheck schema(name, version);
  const Descriptor& descriptor = *message.GetDescriptor();
  Status scanned = scan_json(text_form, limits, [&](const JsonEvent& event) {
    if (schema.sees(event) || !schema.problem().empty()) return std::string();
    return check_against(descriptor, event);
  });
  if (!schema.problem().empty())
    return malformed("schema: " + schema.problem(), "give a file of this kind, or update GraphPipe");
  if (!scanned.ok()) return scanned;
  if (!schema.decided())
    return malformed(text("schema: the first field must be \"schema\": \"", name, "/", version, "\""),
                     "give a file of this kind");
  const auto status =
      google::protobuf::util::JsonStringToMessage(TextView(text_form.data(), text_form.size()), &message);
  if (!status.ok()) return malformed(Terminal::encode_text(std::string(status.message())).str(), "correct the file");
  return Ok{};
}

std::string print_message(const google::protobuf::Message& message) {
  PrintOptions options;
  options.add_whitespace = true;
  options.*kPrintsZeros = true;
  options.preserve_proto_field_names = true;
  std::string out;
  const auto status = google::protobuf::util::MessageToJsonString(message, &out, options);
  GP_CHECK(status.ok());
  return out;
}

Status parse_binary_message(std::string_view bytes, std::string_view name, int version, int64_t max_bytes,
                            google::protobuf::Message& message) {
  if (static_cast<int64_t>(bytes.size()) > max_bytes)
    return Diagnostic{.code = Code::kLimitExceeded,
                      .message = text("the file has ", bytes.size(), " bytes"),
                      .hint = text("give at most ", max_bytes, " bytes, or the JSON form")};
  const LogSilencer silencer;  // the diagnostic below says it once, and says what to do
  if (!message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return malformed(text("the bytes are no ", name, " message"), "make the file again, or give its JSON form");
  const google::protobuf::FieldDescriptor* schema = message.GetDescriptor()->FindFieldByName("schema");
  GP_CHECK(schema != nullptr);
  const std::string problem = schema_problem(message.GetReflection()->GetString(message, schema), name, version);
  if (!problem.empty()) return malformed("schema: " + problem, "give a file of this kind, or update GraphPipe");
  const size_t with_unknown = message.ByteSizeLong();
  message.DiscardUnknownFields();
  if (message.ByteSizeLong() != with_unknown)
    return malformed(text("holds fields that ", name, "/", version, " does not have"), "make the file again");
  return Ok{};
}

std::string print_binary_message(const google::protobuf::Message& message) {
  std::string out;
  GP_CHECK(message.SerializeToString(&out));
  return out;
}

int32_t narrow(int64_t number) {
  GP_CHECK(number >= 0 && number <= kMaxOfMessage);
  return static_cast<int32_t>(number);
}

std::string encode_name(const ModelText& name) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const std::string_view raw = name.raw();
  std::string out;
  for (size_t i = 0; i < raw.size();) {
    const size_t length = raw[i] == '\\' ? 0 : utf8_length(raw.substr(i));
    if (length == 0) {
      const auto byte = static_cast<unsigned char>(raw[i]);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += raw.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return out;
}

ModelText decode_name(std::string_view encoded) {
  std::string raw;
  for (size_t i = 0; i < encoded.size(); ++i) {
    unsigned byte = 0;
    const std::string_view digits =
        encoded.substr(i).starts_with("\\x") ? encoded.substr(i + 2, 2) : std::string_view();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() == 2 && error == std::errc() && end == digits.data() + 2) {
      raw += static_cast<char>(byte);
      i += 3;
    } else {
      raw += encoded[i];
    }
  }
  return ModelText(std::move(raw));
}

void FieldProblems::need_name(std::string_view path, std::string_view name) {
  if (name.size() > 64 || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string_view::npos)
    add(path, "must be lower-case letters, digits and '-', is ", quoted(ModelText(std::string(name))));
}

void FieldProblems::need_digest(std::string_view path, std::string_view digest) {
  const bool hex = digest.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!digest.empty() && (digest.size() != 64 || !hex)) add(path, "must be 64 lower-case hex digits, or empty");
}

Diagnostics with_origin(Diagnostics problems, const std::string& path) {
  for (Diagnostic& problem : problems)
    if (problem.origin.empty()) problem.origin = ModelText(path);
  return problems;
}

}  // namespace graphpipe::files
