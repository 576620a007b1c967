"""Certificates, and the verifier that proves plans safe; imports nothing of planning or excitation."""
