#include "ir/attributes.h"

#include <algorithm>

namespace graphpipe::ir {
namespace {

bool name_is_less(const std::pair<std::string, AttributeValue>& item, std::string_view name) {
  return item.first < name;
}

// The value as a T, or null where the name is absent.
template <typename T>
const T* get(const Attributes& attributes, std::string_view name) {
  const AttributeValue* value = attributes.find(name);
  if (value == nullptr) return nullptr;
  const T* typed = std::get_if<T>(value);
  GP_CHECK(typed != nullptr);
  return typed;
}

}  // namespace

Attributes::Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> items) {
  for (const auto& [name, value] : items) set(name, value);
}

void Attributes::set(std::string_view name, AttributeValue value) {
  const auto place = std::lower_bound(items_.begin(), items_.end(), name, name_is_less);
  if (place != items_.end() && place->first == name) place->second = std::move(value);
  else items_.emplace(place, std::string(name), std::move(value));
}

const AttributeValue* Attributes::find(std::string_view name) const {
  const auto place = std::lower_bound(items_.begin(), items_.end(), name, name_is_less);
  return place != items_.end() && place->first == name ? &place->second : nullptr;
}

int64_t Attributes::get_int(std::string_view name, int64_t fallback) const {
  const auto* value = get<int64_t>(*this, name);
  return value ? *value : fallback;
}

double Attributes::get_double(std::string_view name, double fallback) const {
  const auto* value = get<double>(*this, name);
  return value ? *value : fallback;
}

std::string Attributes::get_string(std::string_view name, std::string_view fallback) const {
  const auto* value = get<std::string>(*this, name);
  return value ? *value : std::string(fallback);
}

std::vector<int64_t> Attributes::get_ints(std::string_view name, std::vector<int64_t> fallback) const {
  const auto* value = get<std::vector<int64_t>>(*this, name);
  if (value) return *value;
  return fallback;
}

std::vector<double> Attributes::get_doubles(std::string_view name, std::vector<double> fallback) const {
  const auto* value = get<std::vector<double>>(*this, name);
  if (value) return *value;
  return fallback;
}

Shape Attributes::get_shape(std::string_view name) const {
  const auto* value = get<Shape>(*this, name);
  return value ? *value : Shape();
}

}  // namespace graphpipe::ir
