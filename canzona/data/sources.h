// These functions are shared by token sources.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "canzona/data/token_source.h"
#include "canzona/data/tokenizer.h"

namespace canzona {

// The built-in language: generated text with structure at every distance for a
// model to learn.
//
//   std::string text = synthetic_text(seed, 4 << 20);
//
// It consists of stories of some twenty sentences each. A story has a topic, to
// which most of its nouns belong, and two people, whose names recur. Sentences:
//
//   the small rako that the velus see keeps a torim.   verbs agree with their
//                                                      subject, over a clause
//   Mira counts 4, 5, 6, 7.        17 plus 5 is 22.    numbers
//   Tovin says "lom rako sen" and Mira repeats "lom rako sen".   copying
//   ( rako [ lom { sen } ] )                           brackets are closed
//
// It uses only ASCII and integer arithmetic, so the bytes are the same on every
// machine.

std::string synthetic_text(uint64_t seed, int64_t size);

// Opens all text files below `path`.
std::unique_ptr<TokenSource> open_folder(const std::string& path,
                                         const TokenOptions& options);

// Tokenizes the bytes of `text`.
std::unique_ptr<TokenSource> tokenize(std::unique_ptr<TokenSource> text,
                                      const Tokenizer& tokenizer);

// Computes TokenSource::digest() for any source.
std::string digest_of(const TokenSource& tokens);

}  // namespace canzona
