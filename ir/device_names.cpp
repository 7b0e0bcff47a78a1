#include "ir/device_names.h"

namespace graphpipe::ir {

std::string device_names(const std::vector<size_t>& numbers) {
  constexpr size_t kMaxNamed = 4, kNamedOfMore = 3;
  if (numbers.size() == 1) return "device " + std::to_string(numbers.front());
  if (numbers.size() > 2 && numbers.back() - numbers.front() + 1 == numbers.size())
    return "devices " + std::to_string(numbers.front()) + " to " + std::to_string(numbers.back());
  std::string names = "devices ";
  const size_t named = numbers.size() > kMaxNamed ? kNamedOfMore : numbers.size();
  for (size_t i = 0; i < named; ++i) names += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return named < numbers.size() ? names + " and " + std::to_string(numbers.size() - named) + " more" : names;
}

}  // namespace graphpipe::ir
