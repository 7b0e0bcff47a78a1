#pragma once
// Messages and their JSON mapping, strictly: unknown fields, wrong types and numbers that do not fit are refused with
// the field's path. Only the .cpp files of this folder include it.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "files/strict_json.h"
#include "support/result.h"

namespace google::protobuf {
class Message;
}

namespace graphpipe::files {

/// Reads `text` into `message`. The first field must be "schema", `name` + "/" + version, with a major version up to
/// `version`.
/// Errors: kMalformedFile, kLimitExceeded; a newer version is refused before anything else is looked at.
Status parse_message(std::string_view text, std::string_view name, int version, const JsonLimits& limits,
                     google::protobuf::Message& message);

/// The JSON mapping with the field names of the schema, indented, ending in a newline; fields in the schema's order.
std::string print_message(const google::protobuf::Message& message);

/// The same in the binary form of Protocol Buffers. `message` needs a string field "schema".
/// Errors: kMalformedFile for bytes that are no such message, for another kind or a newer version, and for fields that
/// the schema does not have; kLimitExceeded.
Status parse_binary_message(std::string_view bytes, std::string_view name, int version, int64_t max_bytes,
                            google::protobuf::Message& message);
std::string print_binary_message(const google::protobuf::Message& message);

/// Strings of a message are UTF-8, names of a model are any bytes. Backslashes and bytes that are not UTF-8 become
/// \xNN; decoding gives the same bytes back.
std::string encode_name(const ModelText& name);
ModelText decode_name(std::string_view encoded);

/// The largest whole number that our messages hold, and the most threads that a file may ask for.
inline constexpr int32_t kMaxOfMessage = std::numeric_limits<int32_t>::max(), kMaxThreads = 1024;
/// Needs: 0 <= number <= kMaxOfMessage.
int32_t narrow(int64_t number);

/// Collects what is wrong with the contents of a file, by the path of the field; of many problems the first ones.
class FieldProblems {
 public:
  FieldProblems(Code code, std::string_view hint) : code_(code), hint_(hint) {}
  template <typename... Parts>
  void add(std::string_view path, const Parts&... parts) {
    if (problems_.size() >= kMaxProblems) return;
    problems_.push_back(
        {.code = code_, .origin = ModelText(), .message = text(path, ": ", text(parts...)), .hint = hint_});
  }
  /// Reports a number outside [low, high].
  template <typename Number>
  void need_range(std::string_view path, Number number, Number low, Number high) {
    if (!(number >= low && number <= high)) add(path, "must be from ", low, " to ", high, ", is ", number);
  }
  /// Reports what is no name of ours: lower-case letters, digits and '-', at most 64; may be empty.
  void need_name(std::string_view path, std::string_view name);
  void need_digest(std::string_view path, std::string_view digest);
  bool empty() const { return problems_.empty(); }
  /// Whether as many problems are known as are told: nothing more needs to be read.
  bool full() const { return problems_.size() >= kMaxProblems; }
  Diagnostics take() { return std::move(problems_); }

 private:
  Code code_;
  std::string hint_;
  Diagnostics problems_;
};

/// Names the file in each problem that names nothing yet.
Diagnostics with_origin(Diagnostics problems, const std::string& path);

}  // namespace graphpipe::files
