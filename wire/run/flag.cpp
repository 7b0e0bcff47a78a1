#include "wire/run/flag.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace graphpipe::wire {
namespace {

template <typename Number>
bool read_number(const std::string& word, Number& value) {
  const char* end = word.data() + word.size();
  Number number{};
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || stop != end || word.empty() || !(number >= 0)) return false;
  value = number;
  return true;
}

}  // namespace

bool read_value(const std::string& word, std::string& value) {
  value = word;
  return !word.empty();
}
bool read_value(const std::string& word, int64_t& value) { return read_number(word, value); }
bool read_value(const std::string& word, uint64_t& value) { return read_number(word, value); }
bool read_value(const std::string& word, int& value) { return read_number(word, value); }
bool read_value(const std::string& word, double& value) {
  double number = 0;
  if (!read_number(word, number) || !std::isfinite(number)) return false;
  value = number;
  return true;
}
bool read_value(const std::string&, bool& value) { return value = true; }

bool read_value(const std::string& word, std::vector<int>& values) {
  std::vector<int> numbers;
  for (size_t begin = 0; begin <= word.size(); begin = std::min(word.find(',', begin), word.size()) + 1) {
    int value = 0;
    if (!read_value(word.substr(begin, word.find(',', begin) - begin), value)) return false;
    numbers.push_back(value);
  }
  values = std::move(numbers);
  return true;
}

std::string write_value(const std::string& value) { return value; }
std::string write_value(int64_t value) { return std::to_string(value); }
std::string write_value(uint64_t value) { return std::to_string(value); }
std::string write_value(int value) { return std::to_string(value); }
std::string write_value(double value) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
std::string write_value(bool value) { return value ? "1" : ""; }
std::string write_value(const std::vector<int>& values) {
  std::string out;
  for (int value : values) out += (out.empty() ? "" : ",") + std::to_string(value);
  return out;
}

}  // namespace graphpipe::wire
