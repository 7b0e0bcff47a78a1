#pragma once
// The names of a module's parameters and buffers: "encoder.norm.weight".

#include <string_view>
#include <utility>

namespace graphpipe::frontend {

/// "encoder.norm" and "weight"; the module of "weight" alone is "".
inline std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace graphpipe::frontend
