#pragma once
// Helpers for formats that are read event by event (scan_json): nothing is kept but what the format has, and counts
// are limited before anything grows.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "files/strict_json.h"

namespace graphpipe::files {

/// Far above real profiles, and small enough that a hostile file cannot fill the memory.
constexpr size_t kMaxLayersOfFile = 100'000, kMaxEdgesOfFile = 1'000'000;
constexpr JsonLimits kProfileLimits = {.max_bytes = int64_t{64} << 20, .deepest = 16};
constexpr double kMaxOfField = 1e18;

/// Each sets `field` and returns what is wrong with the value; empty where nothing is.
inline std::string read_amount(const JsonEvent& event, std::optional<double>& field) {
  if (event.kind != JsonKind::kInteger && event.kind != JsonKind::kReal) return "must be a number";
  if (!std::isfinite(event.number) || event.number < 0 || event.number > kMaxOfField) return "must be from 0 to 1e18";
  field = event.number;
  return "";
}

inline std::string read_integer(const JsonEvent& event, std::optional<int64_t>& field, double low, double high) {
  const bool is_number = event.kind == JsonKind::kInteger || event.kind == JsonKind::kReal;
  if (!is_number || event.number != std::floor(event.number)) return "must be an integer";
  if (event.number < low || event.number > high) return text("must be from ", low, " to ", high);
  field = static_cast<int64_t>(event.number);
  return "";
}

/// Ids are whole numbers that a double holds exactly.
inline std::string read_id(const JsonEvent& event, std::optional<int64_t>& field) {
  return read_integer(event, field, -9e15, 9e15);
}

/// true, false, 1 or 0.
inline std::string read_flag(const JsonEvent& event, std::optional<bool>& field) {
  const bool is_flag =
      event.kind == JsonKind::kBool || (event.kind == JsonKind::kInteger && (event.number == 0 || event.number == 1));
  if (!is_flag) return "must be true or false";
  field = event.number != 0;
  return "";
}

inline std::string need_kind(const JsonEvent& event, JsonKind kind) {
  if (event.kind == kind) return "";
  return kind == JsonKind::kArray ? "must be a list" : kind == JsonKind::kObject ? "must be an object" : "must be text";
}

}  // namespace graphpipe::files
