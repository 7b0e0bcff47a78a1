#include "driver/report/json_object.h"

#include <charconv>
#include <cmath>

#include "support/text.h"

namespace graphpipe::driver {
namespace {

template <typename T, typename Print>
std::string array(const std::vector<T>& values, Print print) {
  std::string out = "[";
  for (const T& value : values) {
    if (out.size() > 1) out += ", ";
    out += print(value);
  }
  return out + "]";
}

std::string json_text(std::string_view value) { return JsonString::encode_text(value).str(); }

}  // namespace

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  return std::string(buffer, end);
}

JsonObject& JsonObject::add_json(std::string_view key, std::string_view json) {
  if (!body_.empty()) body_ += ", ";
  body_ += json_text(key) + ": ";
  body_ += json;
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::string_view value) { return add_json(key, json_text(value)); }
JsonObject& JsonObject::add(std::string_view key, bool value) { return add_json(key, value ? "true" : "false"); }
JsonObject& JsonObject::add(std::string_view key, int64_t value) { return add_json(key, std::to_string(value)); }
JsonObject& JsonObject::add(std::string_view key, double value) { return add_json(key, json_number(value)); }
JsonObject& JsonObject::add(std::string_view key, const std::vector<double>& values) {
  return add_json(key, array(values, json_number));
}
JsonObject& JsonObject::add(std::string_view key, const std::vector<int64_t>& values) {
  return add_json(key, array(values, [](int64_t value) { return std::to_string(value); }));
}
JsonObject& JsonObject::add(std::string_view key, const std::vector<std::string>& values) {
  return add_json(key, array(values, [](const std::string& value) { return json_text(value); }));
}
JsonObject& JsonObject::add(std::string_view key, const JsonObject& value) { return add_json(key, value.str()); }
JsonObject& JsonObject::add(std::string_view key, const std::vector<JsonObject>& values) {
  return add_json(key, array(values, [](const JsonObject& value) { return value.str(); }));
}

}  // namespace graphpipe::driver
