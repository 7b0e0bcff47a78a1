#pragma once
// The command line as a user types it, and what it answers.

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "driver/cli/commands.h"

namespace graphpipe::tests {

struct Answer {
  int code = 0;
  std::string out, err;
  nlohmann::json object() const { return nlohmann::json::parse(out); }
};

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline Answer ask(std::vector<std::string> words) {
  words.insert(words.begin(), "graphpipe");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  std::ostringstream out, err;
  auto* old_out = std::cout.rdbuf(out.rdbuf());
  auto* old_err = std::cerr.rdbuf(err.rdbuf());
  Answer answer;
  answer.code = driver::run_command_line(static_cast<int>(arguments.size()), arguments.data());
  std::cout.rdbuf(old_out);
  std::cerr.rdbuf(old_err);
  answer.out = out.str();
  answer.err = err.str();
  return answer;
}

inline std::string example_model(const std::string& name) {
  return std::string(GRAPHPIPE_SOURCE_DIR "/tests/data/models/") + name + "/model.onnx";
}

/// A verb on the example gpt2_like, its answer as JSON.
inline std::vector<std::string> gpt2(const std::string& verb, const std::vector<std::string>& flags) {
  std::vector<std::string> words{verb, example_model("gpt2_like"), "--loss", "cross_entropy:logits,labels", "--json",
                                 "-q"};
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

}  // namespace graphpipe::tests
