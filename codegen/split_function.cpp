#include "codegen/split_function.h"

#include <algorithm>
#include <map>

#include "codegen/stage_steps.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::ValueId;

/// The part that makes a value, and the parts that read it.
struct Life {
  size_t made = 0;
  bool is_made = false;
  std::vector<size_t> read;  // ascending, each once
};

std::map<ValueId, Life> lives_of(const Graph& graph, const std::vector<FunctionPart>& parts) {
  std::map<ValueId, Life> lives;
  for (size_t part = 0; part < parts.size(); ++part)
    for (const Step& step : parts[part].steps) {
      for (ValueId input : inputs_of_step(graph, step)) {
        std::vector<size_t>& read = lives[input].read;
        if (read.empty() || read.back() != part) read.push_back(part);
      }
      for (ValueId output : outputs_of_step(graph, step)) {
        lives[output].made = part;
        lives[output].is_made = true;
      }
    }
  return lives;
}

/// Sorts loads and stores by their values, so that all repetitions have them in the same order, whatever the places.
void sort_by_values(FunctionPart& part) {
  std::ranges::stable_sort(part.loads, {}, &Load::value);
  std::ranges::stable_sort(part.stores, {}, &Store::value);
}

}  // namespace

SplitFunction split_function(const Graph& graph, const std::vector<Step>& steps, const FunctionPlaces& places,
                             std::span<const PartRange> ranges) {
  SplitFunction result;
  for (const PartRange& range : ranges) {
    FunctionPart& part = result.parts.emplace_back();
    part.steps.assign(steps.begin() + static_cast<std::ptrdiff_t>(range.begin),
                      steps.begin() + static_cast<std::ptrdiff_t>(range.end));
    part.repeats = range.repeats;
  }
  std::map<ValueId, Life> lives = lives_of(graph, result.parts);
  for (const Store& store : places.stores) {
    Life& life = lives[store.value];
    if (life.is_made) continue;  // a value that is only passed on is stored by the last part
    life.made = ranges.size() - 1;
    if (life.read.empty() || life.read.back() != life.made) life.read.push_back(life.made);
  }
  // Every part that reads a loaded value loads it, and the last one takes it. The part that computes a value stores it.
  for (const Load& load : places.loads) {
    const std::vector<size_t>& read = lives.at(load.value).read;
    for (size_t part : read)
      result.parts[part].loads.push_back({load.value, load.place, load.take && part == read.back(), load.is_own});
  }
  for (const Store& store : places.stores) result.parts[lives.at(store.value).made].stores.push_back(store);
  // A value that one part computes and later ones read is handed on.
  for (const auto& [value, life] : lives) {
    if (!life.is_made || life.read.empty() || life.read.back() == life.made) continue;
    const Place place{Place::Array::kHandedOn, result.handed_on++};
    result.parts[life.made].stores.push_back({value, place});
    for (size_t part : life.read)
      if (part != life.made) result.parts[part].loads.push_back({value, place, part == life.read.back()});
  }
  result.parts.back().clears = places.clears;
  for (FunctionPart& part : result.parts)
    if (part.repeats) sort_by_values(part);
  return result;
}

}  // namespace graphpipe::codegen
