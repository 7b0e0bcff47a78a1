#include "codegen/naming.h"

#include <array>

namespace graphpipe::codegen {
namespace {

std::string place_text(Place::Array array, std::string_view index) {
  constexpr std::array<std::string_view, 4> kNames = {"slot", "t", "w", "a.gradients"};
  return text(kNames[static_cast<size_t>(array)], "[", index, "]");
}

}  // namespace

std::string value_name(ir::ValueId value) { return text("v", value); }

std::string Naming::place(Place place) { return place_text(place.array, text(place.index)); }

std::string BlockNaming::value(ir::ValueId value) {
  return text("v", values_.emplace(value, values_.size()).first->second);
}

std::string BlockNaming::place(Place place) {
  std::string& name = places_[place];
  if (name.empty()) name = place_text(place.array, entry(place.index));
  return name;
}

std::string BlockNaming::local(std::string_view name, ir::NodeId node) {
  return text(name, "_", locals_.emplace(node, locals_.size()).first->second);
}

std::string BlockNaming::number(uint32_t stream) {
  std::string& name = numbers_[stream];
  // It initialises the unsigned field of a RandomKey, and braces do not allow a narrowing conversion.
  if (name.empty()) name = text("static_cast<uint32_t>(", entry(stream), ")");
  return name;
}

std::string BlockNaming::entry(size_t number) {
  table_.push_back(number);
  return text("p[", table_.size() - 1, "]");
}

}  // namespace graphpipe::codegen
