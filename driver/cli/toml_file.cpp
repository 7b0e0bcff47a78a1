#include "driver/cli/toml_file.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

// The parser (3.3) fails assertions of its own on some malformed files; here these become errors like all others.
#define TOML_EXCEPTIONS 1
#undef NDEBUG
#define TOML_ASSERT(expression) (static_cast<bool>(expression) ? void() : throw std::logic_error(#expression))
#define TOML_HEADER_ONLY 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored \
    "-Wterminate"  // in functions that cannot throw it ends the program, as an assertion does
#include <toml++/toml.h>
#pragma GCC diagnostic pop

#include "files/text_file.h"

namespace graphpipe::driver {
namespace {

constexpr int64_t kMaxTomlBytes = int64_t{1} << 20;

Diagnostic no_toml(const std::string& path, std::string message) {
  return {.code = Code::kMalformedFile,
          .origin = ModelText(path),
          .message = std::move(message),
          .hint = "write it as TOML: name = value lines, strings in quotation marks"};
}

Result<toml::table> parse_toml(const std::string& content, const std::string& path) {
  try {
    return toml::parse(content);
  } catch (const toml::parse_error& error) {
    return no_toml(path, text("line ", error.source().begin.line, ": ", error.description()));
  } catch (const std::logic_error&) {
    return no_toml(path, "line 1 or a later one is malformed in a way that the parser cannot place");
  }
}

TomlNode node_of(const toml::node& from) {
  TomlNode node{.line = from.source().begin.line};
  if (const auto* text = from.as_string()) {
    node.kind = TomlKind::kText;
    node.text = text->get();
  } else if (const auto* integer = from.as_integer()) {
    node.kind = TomlKind::kInteger;
    node.integer = integer->get();
  } else if (const auto* real = from.as_floating_point()) {
    node.kind = TomlKind::kReal;
    node.real = real->get();
  } else if (const auto* boolean = from.as_boolean()) {
    node.kind = TomlKind::kBool;
    node.integer = boolean->get() ? 1 : 0;
  } else if (const toml::array* list = from.as_array()) {
    node.kind = TomlKind::kList;
    for (const toml::node& each : *list) node.list.push_back(node_of(each));
  } else if (const toml::table* table = from.as_table()) {
    node.kind = TomlKind::kTable;
    for (const auto& [key, value] : *table) node.table.emplace_back(std::string(key.str()), node_of(value));
  }
  return node;
}

}  // namespace

const TomlNode* TomlNode::find(const std::string& name) const {
  const auto found = std::ranges::find(table, name, &std::pair<std::string, TomlNode>::first);
  return found == table.end() ? nullptr : &found->second;
}

Result<TomlNode> read_toml(const std::string& path) {
  GP_TRY(const std::string content, files::read_file(path, kMaxTomlBytes));
  GP_TRY(const toml::table table, parse_toml(content, path));
  return node_of(table);
}

std::string toml_text(const std::string& word) {
  std::ostringstream out;
  out << toml::value<std::string>(word);
  return out.str();
}

}  // namespace graphpipe::driver
