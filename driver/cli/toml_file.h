#pragma once
// TOML files of the user, read by toml++.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/result.h"

namespace graphpipe::driver {

enum class TomlKind : uint8_t { kText, kInteger, kReal, kBool, kList, kTable, kOther };

/// A value; the members that its kind does not name are empty.
struct TomlNode {
  TomlKind kind = TomlKind::kOther;
  int64_t line = 1;
  std::string text;
  int64_t integer = 0;  // 1 and 0 for true and false
  double real = 0;
  std::vector<TomlNode> list;
  std::vector<std::pair<std::string, TomlNode>> table;  // by name

  bool is(TomlKind one) const { return kind == one; }
  bool is_number() const { return kind == TomlKind::kInteger || kind == TomlKind::kReal; }
  /// Null where a table has no such member.
  const TomlNode* find(const std::string& name) const;
};

/// The table that is the whole file. Errors: kUnreadableFile, kLimitExceeded above 1 MiB; kMalformedFile with the line.
Result<TomlNode> read_toml(const std::string& path);

/// The text between quotation marks, as TOML has it.
std::string toml_text(const std::string& word);

}  // namespace graphpipe::driver
