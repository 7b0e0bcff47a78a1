#pragma once
// The flat object that --json prints: the verb's fields at the top level, then the envelope (docs/semantics.md, section
// 6).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::driver {

/// A JSON object under construction; fields appear in the order added. Text may be hostile, it is encoded here.
class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::string_view value);
  JsonObject& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  JsonObject& add(std::string_view key, bool value);
  JsonObject& add(std::string_view key, int64_t value);
  JsonObject& add(std::string_view key, int value) { return add(key, static_cast<int64_t>(value)); }
  JsonObject& add(std::string_view key, size_t value) { return add(key, static_cast<int64_t>(value)); }
  /// Infinite and undefined numbers become null: JSON has none.
  JsonObject& add(std::string_view key, double value);
  JsonObject& add(std::string_view key, const std::vector<double>& values);
  JsonObject& add(std::string_view key, const std::vector<int64_t>& values);
  JsonObject& add(std::string_view key, const std::vector<std::string>& values);
  JsonObject& add(std::string_view key, const JsonObject& value);
  JsonObject& add(std::string_view key, const std::vector<JsonObject>& values);
  /// Appends text that is JSON already, such as a stage program's own report. Needs: valid JSON.
  JsonObject& add_json(std::string_view key, std::string_view json);

  std::string str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

/// The shortest decimal that reads back as the same double; "null" where there is none.
std::string json_number(double value);

}  // namespace graphpipe::driver
