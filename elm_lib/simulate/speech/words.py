"""The words of the Spiking Heidelberg Digits by label: 0-9 English, 10-19 German."""

from __future__ import annotations

WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"),
)
