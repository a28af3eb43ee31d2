#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "infer/sample.h"
#include "model/language_model.h"

namespace tightloop {

class CalculatorCalls;
class SequenceReader;
struct Chunk;
struct Sequence;
struct StartedPass;

enum class AnswerEnd { kLength, kStopped, kContextFull, kInterrupted };
const char* to_string(AnswerEnd end);

/// A token of an answer. Log probabilities are those of the plain softmax, before penalty, temperature and
/// cuts; 0 and none where they were not asked for, and for what the calculator wrote.
struct DecodedToken {
  int32_t id = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> likeliest{};  // likeliest first
};

struct DecodeEnd {
  AnswerEnd end = AnswerEnd::kLength;
  int64_t prompt_tokens = 0, made_tokens = 0;
  int64_t shared_tokens = 0;     // of the prompt, whose keys and values were there already
  std::string error{};           // empty: none. The answer ends where it happened, as kInterrupted
  std::exception_ptr failure{};  // what was thrown, where there is an error
};

/// A prompt to continue. Random numbers depend on the seed, `sample` and the position in the answer alone: an
/// answer does not depend on what is decoded beside it.
struct DecodeRequest {
  std::vector<int32_t> prompt;
  SamplingConfig sampling{};
  uint64_t sample = 0;                 // which of several answers to the same prompt
  std::vector<int32_t> stop_tokens{};  // any of these ends the answer, and is no part of it
  int64_t vocab_size = 0;              // ids below this may be chosen; 0: all that the model has
  int64_t logprobs = -1;  // how many of the likeliest tokens are told beside each; -1: no log probabilities
  const CalculatorCalls* calculator = nullptr;  // answers calls in the answer; outlives the request
  /// Both are called on the decoder's thread, without a lock, and must not block. False ends the answer; its
  /// token still belongs to it. What is thrown ends the answer with an error.
  std::function<bool(const DecodedToken&)> on_token{};
  std::function<void(const DecodeEnd&)> on_end{};  // exactly once, after the last token; must not throw
};

struct DecoderConfig {
  int64_t cache_tokens = 32768;  // tokens whose keys and values are kept; memory grows up to it as needed
  int64_t running = 64;          // requests that are decoded at once; more wait
  int64_t prefill_tokens = 512;  // tokens of prompts that one pass reads, beside one of each running answer
  bool share_prefixes = true;    // beginnings that were read before are not read again
  bool graphs = true;            // on a GPU, passes of one token a request are captured and replayed
  int64_t ahead = -1;  // passes that are started before the tokens of the first are looked at; -1: on a GPU
};

struct DecoderLoad {
  int64_t running = 0, waiting = 0;  // requests
  int64_t cache_tokens_used = 0;     // by running requests; the rest holds what may be shared
  int64_t cache_tokens = 0;          // as configured
  // Since the start:
  int64_t read_tokens = 0, shared_tokens = 0;  // of prompts; read again after a preemption, they count again
  int64_t made_tokens = 0, preemptions = 0;
  int64_t replayed = 0;  // passes that ran as captured graphs
};

/// Decodes any number of requests together: they join and leave between passes, prompts are read in chunks
/// beside the answers that are being written, beginnings of prompts that were read before are shared, and
/// where the cache is full the request that came last gives its place back and is read again later. First
/// come, first served.
class Decoder {
 public:
  using Ticket = uint64_t;

  /// The model must outlive it, and is the decoder's alone while it advances.
  explicit Decoder(LanguageModel& model, const DecoderConfig& config = {});
  /// Requests that have not ended do so, as kInterrupted.
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// From any thread. A prompt that can never be read is a usage error.
  Ticket submit(DecodeRequest request);
  /// From any thread. The answer ends as kInterrupted, unless it has ended.
  void cancel(Ticket ticket);

  /// Starts one pass of the model, on the calling thread, and tells what earlier ones have made. False: there
  /// is nothing to do.
  bool advance();
  /// Advances until it is told to stop; sleeps while there is nothing to do.
  void run(const std::stop_token& stop);

  /// From any thread, as of the last pass.
  DecoderLoad load() const;

 private:
  void check(const DecodeRequest& request) const;
  void receive();
  void plan_running(std::vector<Chunk>& chunks, int64_t& prompt_tokens);
  void plan_waiting(std::vector<Chunk>& chunks, int64_t& prompt_tokens);
  bool may_read_on(const Sequence& sequence) const;
  bool make_room(size_t index, int64_t tokens);
  void read(const std::vector<Chunk>& chunks);
  void choose(const std::vector<Sequence*>& due, const at::Tensor& logits_BV);
  DecodedToken told(const DecodeRequest& request, int32_t id, const at::Tensor& logits_V) const;
  void finish_passes(int64_t but);
  void take_back(Sequence& sequence);
  void deliver(Sequence& sequence, DecodedToken token);
  void fail();
  bool remove_ended();
  void publish();

  LanguageModel& model_;
  const DecoderConfig config_;
  std::unique_ptr<SequenceReader> reader_;
  // Only the thread that advances touches these. Both in the order of their coming.
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::deque<StartedPass> started_;  // whose tokens are still to be told, the oldest first
  bool waits_ = false;               // for these, before the next pass
  DecoderLoad counts_;

  mutable std::mutex mutex_;  // what follows
  std::condition_variable_any changed_;
  std::vector<std::unique_ptr<Sequence>> submitted_;
  std::vector<Ticket> cancelled_;
  Ticket last_ticket_ = 0;
  DecoderLoad load_;
};

/// The most tokens that the model can hold: the learned positions of families that have such, or no limit.
int64_t longest_sequence(const ModelConfig& config);
/// The most tokens of a prompt. Attention's cost grows with the square of the length, and a model is of no
/// use far beyond what it was trained on.
int64_t longest_prompt(const ModelConfig& config);

}  // namespace tightloop
