#include "codegen/split_function.h"

#include <algorithm>
#include <map>

#include "codegen/stage_steps.h"

namespace graphpipe::codegen {
namespace {

using ir::Graph;
using ir::ValueId;

/// For each value the parts that make it and that read it.
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

}  // namespace

SplitFunction split_function(const Graph& graph, const std::vector<Step>& steps, const FunctionPlaces& places,
                             size_t max_steps) {
  SplitFunction result;
  const size_t count = std::max<size_t>(1, (steps.size() + max_steps - 1) / max_steps);
  result.parts.resize(count);
  for (size_t i = 0; i < steps.size(); ++i) result.parts[i * count / steps.size()].steps.push_back(steps[i]);
  std::map<ValueId, Life> lives = lives_of(graph, result.parts);
  for (const Store& store : places.stores) {
    Life& life = lives[store.value];
    if (life.is_made) continue;  // what is only passed on leaves with the last part
    life.made = count - 1;
    if (life.read.empty() || life.read.back() != life.made) life.read.push_back(life.made);
  }
  for (const Load& load : places.loads) {
    const std::vector<size_t>& read = lives.at(load.value).read;
    for (size_t part : read)
      result.parts[part].loads.push_back({load.value, load.place, load.take && part == read.back()});
  }
  for (const Store& store : places.stores) result.parts[lives.at(store.value).made].stores.push_back(store);
  for (const auto& [value, life] : lives) {
    if (!life.is_made || life.read.empty() || life.read.back() == life.made) continue;
    const std::string place = text("t[", result.handed_on++, "]");
    result.parts[life.made].stores.push_back({value, place});
    for (size_t part : life.read)
      if (part != life.made) result.parts[part].loads.push_back({value, place, part == life.read.back()});
  }
  result.parts.back().clears = places.clears;
  return result;
}

}  // namespace graphpipe::codegen
