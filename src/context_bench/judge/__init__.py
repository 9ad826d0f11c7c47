"""Models as judges: prompts, ratings, pairs, audits and calibration."""
