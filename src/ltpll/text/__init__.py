"""Text: columns of prose as features, by TF-IDF or a pretrained sentence encoder."""

from ltpll.text.sentences import SentenceEncoder
from ltpll.text.tfidf import TfidfText

__all__ = ["SentenceEncoder", "TfidfText"]
